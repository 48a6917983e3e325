"""The other process's side of postings: writes parts, hands them over, waits until they are in the log.

What belongs here: how records get to the owner of a store that this process does not own. When nobody owns the
store, handing over opens it, which appends what is there, and closes it again. Which posting is appended when, and
only once, is `inbox.py`'s business.

Any number of processes may stage parts; one of them posts. Until then nothing of them counts."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
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
"""How often a waiting poster looks, at first; appending a small batch takes about this long."""
_LOOK_MOST_S = 0.05
_RING_S = 0.5
"""How often it rings again: for an owner that has just come, or could not append a moment ago."""
_FILES = Files()


class Closeable(Protocol):
    """An open store."""

    def close(self) -> None: ...


class Poster:
    """Hands records to the owner of the store in a directory, whoever that is. Any thread may call."""

    def __init__(self, path: Path, open_store: Callable[[Path], Closeable]) -> None:
        """path: of the store, which is made when it is missing. open_store: `timestone.open`, for a store that no
        process owns."""
        self.path = path
        self._open_store = open_store
        self._folder = path / names.INBOX_NAME

    def stage(self, group: str, frames: Iterable[Frame]) -> str:
        """Write frames to a part, durably, and return its name for the posting. `group` is any file name; parts of
        one group are removed together. Raises OSError, InvalidName; nothing is left behind then."""
        name = f"{STAGING_NAME}/{group}/{secrets.token_hex(16)}"
        path = self._folder / name
        _FILES.make_directories(path.parent)
        with _FILES.new_file(path) as fd:
            position = 0
            for frame in frames:
                encoded = frame.encode()
                _FILES.write_all(fd, encoded, position)
                position += len(encoded)
        _FILES.sync_directory(path.parent)
        return name

    def post(self, posting: Posting, *, timeout_s: float = TIMEOUT_S) -> None:
        """Hand a posting over; when this returns, its records are in the log and synced, once, however often it is
        posted and whoever crashes meanwhile.

        Raises PostingRefused; PostingNotTaken when nobody has appended it in time; OSError; and what `timestone.open`
        raises for a store that nobody owns: the posting then waits for the next one who can open it."""
        posted = self._folder / (posting.id.stem + POSTED_SUFFIX)
        _FILES.make_directories(self._folder)
        posted.with_suffix(REFUSED_SUFFIX).unlink(missing_ok=True)  # of an earlier try
        unlinked = posted.with_suffix(f".{secrets.token_hex(8)}{READY_SUFFIX}")
        _FILES.write_file(unlinked, posting.encode())
        # Never over one that is there: the owner may have begun with it, and another try may have other records.
        with contextlib.suppress(FileExistsError):
            _FILES.link(unlinked, posted)
        _FILES.unlink(unlinked)
        _FILES.sync_directory(self._folder)
        self._wait(posted, timeout_s)

    def discard(self, parts: Iterable[str]) -> None:
        """Remove parts that will not be posted. Those that are gone are no error."""
        for part in parts:
            (self._folder / part).unlink(missing_ok=True)

    def discard_group(self, group: str) -> None:
        """Remove a group with all its parts, after it was posted."""
        folder = self._folder / STAGING_NAME / group
        with contextlib.suppress(OSError):  # a task that nobody waits for any more may still write there
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            folder.rmdir()

    def _wait(self, posted: Path, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        taken, refused = posted.with_suffix(TAKEN_SUFFIX), posted.with_suffix(REFUSED_SUFFIX)
        look_s, ring_at = _LOOK_S, 0.0
        owner = "nobody"  # as far as we know
        while posted.exists() or taken.exists():
            now = time.monotonic()
            if ring_at and now > deadline:  # nobody is given up who was never called
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
        """See to it that somebody looks into the inbox; returns who does not."""
        if ring(self._folder / BELL_NAME):
            return "its owner"
        try:
            # Opening appends what waits, as the owner of the moment.
            self._open_store(self.path).close()
        except StoreLocked as error:
            return f"process {error.pid}, which owns the store and does not accept postings,"
        return ""

    def _withdraw(self, posted: Path, owner: str, timeout_s: float) -> None:
        """Take back what nobody has begun with. Raises PostingNotTaken."""
        try:
            posted.unlink()
        except FileNotFoundError:
            raise PostingNotTaken(
                f"{self.path}: the posting is not appended after {timeout_s:g} s; its owner has begun with it and"
                " will finish it when it can"
            ) from None
        raise PostingNotTaken(
            f"{self.path}: {owner} has not taken the posting in {timeout_s:g} s; it was withdrawn"
        )


def _reason(refused: Path) -> str:
    """Why a posting was refused, as its owner has left it. Raises OSError."""
    try:
        return str(json_object(_FILES.read_file(refused))["reason"])
    except (ValueError, KeyError) as error:
        return f"it was refused, and {refused} does not say why: {error!r}"
