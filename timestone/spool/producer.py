"""Producer of postings: writes parts, posts them to the owner of a store, and waits until they are in the log.

If no process owns the store, posting opens it, which appends the waiting postings, and closes it again. The order in
which postings are appended, each once, is in `consumer.py`.

Any number of processes may stage parts; one of them posts. Until then the parts have no effect."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from timestone.disk.files import Files
from timestone.disk.json_document import json_object
from timestone.errors import PostingNotTaken, PostingRefused, StoreLocked
from timestone.format import names
from timestone.spool.consumer import (
    BELL_NAME,
    POSTED_SUFFIX,
    READY_SUFFIX,
    REFUSED_SUFFIX,
    STAGING_NAME,
    TAKEN_SUFFIX,
)
from timestone.spool.doorbell import ring
from timestone.spool.format import Frame, Posting

TIMEOUT_S = 60.0
_LOOK_S = 0.002
"""First interval of checking for the answer: about the time to append a small batch."""
_LOOK_MOST_S = 0.05
_RING_S = 0.5
"""Interval of ringing again, for an owner that has just started or could not append before."""
_FILES = Files()


class Closeable(Protocol):
    """An open store."""

    def close(self) -> None: ...


class Part:
    """Part that is being written. Made by `SpoolProducer.new_part`."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        """For the posting."""
        self._fd = fd
        self._position = 0

    def add(self, frame: Frame) -> None:
        """Append a frame. Raises OSError, InvalidName."""
        self.add_encoded(frame.encode())

    def add_encoded(self, frames: bytes) -> None:
        """Append frames that were encoded elsewhere; the consumer checks them. Raises OSError."""
        _FILES.write_all(self._fd, frames, self._position)
        self._position += len(frames)


class SpoolProducer:
    """Sends records to the owner of a store. Thread-safe."""

    def __init__(self, path: Path, open_store: Callable[[Path], Closeable]) -> None:
        """path: directory of the store, created if missing. open_store: `timestone.open`, called if no process owns the
        store."""
        self.path = path
        self._open_store = open_store
        self._folder = path / names.INBOX_NAME

    @contextlib.contextmanager
    def new_part(self, group: str) -> Iterator[Part]:
        """Open a part for the block to write to, and flush it behind the block. group: any file name; the parts of a
        group are removed together. Raises OSError; an error in the block leaves no file."""
        name = f"{STAGING_NAME}/{group}/{secrets.token_hex(16)}"
        path = self._folder / name
        _FILES.make_directories(path.parent)
        with _FILES.new_file(path) as fd:
            yield Part(name, fd)
        _FILES.sync_directory(path.parent)

    def stage(self, group: str, frames: Iterable[Frame]) -> str:
        """Write frames to a new part and return its name for a posting. Raises OSError, InvalidName."""
        with self.new_part(group) as part:
            for frame in frames:
                part.add(frame)
        return part.name

    def post(self, posting: Posting, *, timeout_s: float = TIMEOUT_S) -> None:
        """Post, and return when the records are durable in the log, exactly once however often the posting is repeated
        and whichever process crashes.

        Raises PostingRefused; PostingNotTaken on timeout; OSError; and the errors of `timestone.open` if no process
        owns the store: the posting is then appended by the next process that opens it."""
        posted = self._folder / (posting.id.stem + POSTED_SUFFIX)
        _FILES.make_directories(self._folder)
        posted.with_suffix(REFUSED_SUFFIX).unlink(missing_ok=True)  # of an earlier try
        unlinked = posted.with_suffix(f".{secrets.token_hex(8)}{READY_SUFFIX}")
        _FILES.write_file(unlinked, posting.encode())
        # Never replaces an existing posting: the owner may have begun to append it.
        with contextlib.suppress(FileExistsError):
            _FILES.link(unlinked, posted)
        _FILES.unlink(unlinked)
        _FILES.sync_directory(self._folder)
        self._wait(posted, timeout_s)

    def discard(self, parts: Iterable[str]) -> None:
        """Remove parts that will not be posted. Missing parts are ignored."""
        for part in parts:
            (self._folder / part).unlink(missing_ok=True)

    def discard_group(self, group: str) -> None:
        """Remove a group with all its parts."""
        folder = self._folder / STAGING_NAME / group
        with contextlib.suppress(OSError):  # an abandoned task may still write there
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            folder.rmdir()

    def _wait(self, posted: Path, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        taken, refused = posted.with_suffix(TAKEN_SUFFIX), posted.with_suffix(REFUSED_SUFFIX)
        look_s, ring_at = _LOOK_S, 0.0
        owner = "no process"
        while posted.exists() or taken.exists():
            now = time.monotonic()
            if ring_at and now > deadline:  # withdraw only after a ring
                self._withdraw(posted, owner, timeout_s)
            if now >= ring_at:
                owner = self._call_owner() or owner
                ring_at = now + _RING_S
            time.sleep(look_s)
            look_s = min(2 * look_s, _LOOK_MOST_S)
        if refused.exists():
            reason = _reason(refused)
            refused.unlink(missing_ok=True)
            raise PostingRefused(f"{self.path}: {reason}")

    def _call_owner(self) -> str:
        """Make the owner read the inbox, or open the store. Return the name of the process that may not answer."""
        if ring(self._folder / BELL_NAME):
            return "its owner"
        try:
            # Opening appends what waits, as the owner of the moment.
            self._open_store(self.path).close()
        except StoreLocked as error:
            return f"process {error.pid}, which owns the store and does not accept postings,"
        return ""

    def _withdraw(self, posted: Path, owner: str, timeout_s: float) -> None:
        """Remove the posting unless the owner has begun to append it. Raises PostingNotTaken."""
        try:
            posted.unlink()
        except FileNotFoundError:
            raise PostingNotTaken(
                f"{self.path}: the posting was not appended within {timeout_s:g} s; the owner of the store has begun to"
                " append it and will finish"
            ) from None
        raise PostingNotTaken(
            f"{self.path}: {owner} has not taken the posting within {timeout_s:g} s; it was withdrawn"
        )


def _reason(refused: Path) -> str:
    """Return the reason in a `.refused` file. Raises OSError."""
    try:
        return str(json_object(_FILES.read_file(refused))["reason"])
    except (ValueError, KeyError) as error:
        return f"refused; the reason in {refused} cannot be read: {error!r}"
