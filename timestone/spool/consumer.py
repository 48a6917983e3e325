"""Consumer of postings: appends the records of other processes exactly once. Runs in the owner of the store.

docs/formats/posting.md has the layout of the folder `inbox`, docs/decisions/0010-postings.md the reasons.

    staging/…           parts that are being written or wait for their posting
    <stem>.….ready      posting that is being written
    <stem>.posting      posted: complete and durable
    <stem>.taken        being appended
    <stem>.refused      never appended; contains the reason
    bell                named pipe that wakes the owner

Each step of a posting is durable before the next: the catalogue notes that it has begun and the end offset of the log;
its records are appended, the first of each frame with a mark; the log is synced; the catalogue notes that it is done;
the file is removed. After a crash, the marks from the noted offset on show how many records were appended. A torn frame
ends where its segment ends, because a process never appends to a segment of another process."""

import contextlib
import itertools
import json
import logging
import shutil
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from timestone.disk.catalog import Catalog
from timestone.disk.files import Files
from timestone.errors import (
    CorruptLog,
    InvalidName,
    RecordTooLarge,
    StoreClosed,
    TimestoneError,
    TopicLimit,
    UnsupportedFormat,
)
from timestone.format import names
from timestone.log import Log
from timestone.spool.append_once import append_frame, append_once, check_frames, progress_of
from timestone.spool.doorbell import Doorbell
from timestone.spool.format import Frame, Posting, PostingId, check_producer, read_frames

STAGING_NAME = "staging"
BELL_NAME = "bell"
POSTED_SUFFIX = ".posting"
TAKEN_SUFFIX = ".taken"
REFUSED_SUFFIX = ".refused"
READY_SUFFIX = ".ready"
LEFT_OVER_S = 24 * 3600
"""Older parts are removed as abandoned."""

_LOGGER = logging.getLogger("timestone")
_WRONG = (InvalidName, CorruptLog, RecordTooLarge, TopicLimit, UnsupportedFormat, ValueError, OverflowError)
"""Errors that a retry does not mend: the posting is refused."""


class ConsumerStore(Protocol):
    """The store, as the consumer sees it. Implemented by `timestone.store.Store`."""

    path: Path
    files: Files
    documents: Catalog

    def log(self, name: str, partition: int = 0) -> Log: ...


class SpoolConsumer:
    """Consumer of the postings to an open store."""

    def __init__(self, store: ConsumerStore) -> None:
        self._store = store
        self._files = store.files
        self._folder = store.path / names.INBOX_NAME
        self._bell: Doorbell | None = None
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Append postings as they arrive, in a thread, until `close`. Raises OSError."""
        if self._bell is None:
            self._files.make_directories(self._folder)
            self._bell = Doorbell(self._folder / BELL_NAME, self.take_all, name="timestone-inbox")

    def close(self) -> None:
        """Finish the posting that is being appended and end the thread."""
        doorbell, self._bell = self._bell, None
        if doorbell is not None:
            doorbell.close()

    def abandon(self) -> None:
        """Close the pipe in a forked child, which has no listening thread."""
        if self._bell is not None:
            self._bell.abandon()

    def take_all(self) -> None:
        """Append all waiting postings. One that cannot be appended now stays, with the later ones for the same log, and
        is tried again at the next ring."""
        with self._lock:
            held_up: set[str] = set()
            try:
                waiting = self._waiting()
                for path in waiting:
                    self._take(path, held_up)
                if not waiting:
                    self._remove_left_overs()
            except StoreClosed:
                return
            except (OSError, TimestoneError) as error:
                _LOGGER.error("%s: postings cannot be appended now and are kept: %s", self._folder, error)

    def append_once(self, posting: PostingId, frame: Frame) -> range | None:
        """Append a frame of a producer that is no file here, with the same marks; durable when it returns. Return its
        offsets, None if the number was appended before. Raises what `Log.append_batch` does, UnknownLog, OSError."""
        check_producer(posting.producer)
        with self._lock:
            log = self._store.log(posting.log, posting.partition)
            return append_frame(log, self._store.documents, posting, frame)

    def _waiting(self) -> list[Path]:
        """Return the waiting postings, those already begun first."""
        if not self._folder.is_dir():
            return []
        found = self._files.names(self._folder)
        return [
            self._folder / name
            for suffix in (TAKEN_SUFFIX, POSTED_SUFFIX)
            for name in found
            if name.endswith(suffix)
        ]

    def _take(self, path: Path, held_up: set[str]) -> None:
        """Append a posting or refuse it. One that must wait blocks later ones for the same log: if a later number of
        the same producer were appended first, the earlier would count as appended too."""
        taken = path.with_suffix(TAKEN_SUFFIX)
        try:
            if held_up and self._log_of(path) in held_up:
                return
            if path != taken:
                self._files.rename(path, taken)
        except FileNotFoundError:
            return  # withdrawn by its producer
        try:
            self._finish(taken)
        except _WRONG as error:
            _LOGGER.warning("%s: refused: %s", taken, error)
            self._refuse(taken, str(error))
        except StoreClosed:
            raise
        except (OSError, TimestoneError) as error:
            _LOGGER.error("%s: the posting cannot be appended now and is kept: %s", taken, error)
            held_up.add(self._log_of(taken))

    def _log_of(self, path: Path) -> str:
        """Return the folder of the log that a posting is for; empty for an invalid posting. Raises OSError."""
        try:
            posting = Posting.decode(self._files.read_file(path), path)
        except _WRONG:
            return ""
        return names.log_folder(posting.log, posting.partition)

    def _finish(self, taken: Path) -> None:
        posting = Posting.decode(self._files.read_file(taken), taken)
        key, documents = posting.id.key, self._store.documents
        if taken.stem != posting.id.stem:
            raise CorruptLog(taken, f"the file name does not match its content, posting {posting.id.stem}")
        if posting.number > progress_of(documents, posting.id).done:
            # Check all parts before the first record: a posting is appended whole or not at all.
            parts = [self._folder / part for part in posting.parts]
            log = self._store.log(posting.log, posting.partition)
            self._check(log, parts)
            with contextlib.closing(self._frames(parts)) as frames:
                append_once(log, documents, posting.id, frames)
        self._files.unlink(taken)
        if not posting.remembered:
            self._files.sync_directory(self._folder)
            documents.put_many(names.INBOX_SPACE, {key: None})

    def _check(self, log: Log, parts: list[Path]) -> None:
        """Raise an error for records that the log cannot take."""
        for number, path in enumerate(parts):
            try:
                check_frames(log, read_frames(self._files, path), number)
            except FileNotFoundError as error:
                raise CorruptLog(path, "a part of the posting is missing") from error

    def _frames(self, parts: list[Path]) -> Generator[Frame, None, None]:
        for path in parts:
            yield from read_frames(self._files, path)

    def _refuse(self, taken: Path, reason: str) -> None:
        """Replace the posting by a `.refused` file with the reason, which its producer waits for."""
        refused = taken.with_suffix(REFUSED_SUFFIX)
        unfinished = names.with_suffix(refused, names.TEMPORARY_SUFFIX)
        self._files.discard(unfinished)  # of an earlier try
        self._files.write_file(unfinished, json.dumps({"reason": reason}).encode())
        self._files.rename(unfinished, refused)
        self._files.sync_directory(self._folder)
        self._files.unlink(taken)

    def _remove_left_overs(self) -> None:
        """Remove the files of queries and producers that were killed and did not return."""
        if not self._folder.is_dir():
            return
        oldest_s = time.time() - LEFT_OVER_S
        answers = (self._folder.glob(f"*{suffix}") for suffix in (REFUSED_SUFFIX, READY_SUFFIX))
        for path in [*(self._folder / STAGING_NAME).glob("*"), *itertools.chain(*answers)]:
            try:
                if path.stat().st_mtime < oldest_s:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            except FileNotFoundError:
                continue  # removed by its owner in between
            except OSError as error:
                _LOGGER.warning("%s: the abandoned file could not be removed: %s", path, error)
