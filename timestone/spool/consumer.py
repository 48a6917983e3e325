"""The owner's side of postings: takes what other processes have handed over and appends it exactly once.

What belongs here: the names in the folder `inbox` of a store, the order in which a posting is taken, and how one that
was interrupted is finished. docs/formats/posting.md has the layout, docs/decisions/0010-postings.md the reasons.

    staging/…           parts that are being written, or wait for their posting
    <stem>.….ready      a posting that is being written
    <stem>.posting      handed over, complete and durable
    <stem>.taken        the owner is at it
    <stem>.refused      never appended; says why
    bell                the pipe on which a poster rings

A posting is done in this order, each step durable before the next: the catalogue says that it has begun and at which
offset the log ended; its records are appended, the first of each frame with a mark; the log is synced; the catalogue
says that it is done; its file goes. After a crash the marks behind that offset tell how far it came. Frames end at a
segment's end when they were torn, because a process never appends to a segment of another one."""

import itertools
import json
import logging
import shutil
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from timestone.config import Ack
from timestone.disk.catalog import Catalog
from timestone.disk.files import Files
from timestone.disk.json_document import integer, json_object
from timestone.errors import (
    CorruptLog,
    CorruptRecord,
    InvalidName,
    RecordTooLarge,
    StoreClosed,
    TimestoneError,
    TopicLimit,
    UnsupportedFormat,
)
from timestone.format import names
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.spool.doorbell import Bell
from timestone.spool.format import MARK_BYTES, Posting, read_frames

SPACE = names.INBOX_SPACE
"""The space of the catalogue's documents; a key is `<log>-<partition>/<producer>`."""
STAGING_NAME = "staging"
BELL_NAME = "bell"
POSTED_SUFFIX = ".posting"
TAKEN_SUFFIX = ".taken"
REFUSED_SUFFIX = ".refused"
READY_SUFFIX = ".ready"
LEFT_OVER_S = 24 * 3600
"""Parts that are older than this belong to nobody: a query that stages for so long has other troubles."""

_LOGGER = logging.getLogger("timestone")
_WRONG = (InvalidName, CorruptLog, RecordTooLarge, TopicLimit, UnsupportedFormat, ValueError, OverflowError)
"""What will be wrong with a posting however often it is tried."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the catalogue knows of a producer."""

    done: int = -1
    """Postings up to this number are appended."""
    begun: int | None = None
    """This one was being appended."""
    since: int = 0
    """Nothing of it lies below this offset."""

    @classmethod
    def decode(cls, document: bytes | None, path: Path, key: str) -> "Progress":
        """Raises CorruptLog."""
        if document is None:
            return cls()
        try:
            found = cls(**json_object(document))
            integer(found.done, -1)
            integer(found.since)
            if found.begun is not None:
                integer(found.begun)
            return found
        except (ValueError, TypeError) as error:
            raise CorruptLog(path, f"what producer {key!r} has posted cannot be read: {error!r}") from error


class InboxStore(Protocol):
    """What an inbox needs of its store: implemented by `timestone.store.Store`."""

    path: Path
    files: Files
    documents: Catalog

    def log(self, name: str, partition: int = 0) -> Log: ...


class Inbox:
    """The inbox of an open store."""

    def __init__(self, store: InboxStore) -> None:
        self._store = store
        self._files = store.files
        self._folder = store.path / names.INBOX_NAME
        self._bell: Bell | None = None
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Take postings as they come, in a thread of its own, until `close`. Raises OSError."""
        if self._bell is None:
            self._files.make_directories(self._folder)
            self._bell = Bell(self._folder / BELL_NAME, self.take_all, name="timestone-inbox")

    def close(self) -> None:
        """Finish the posting that is being appended."""
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()

    def abandon(self) -> None:
        """Nobody is to believe that a forked child listens."""
        if self._bell is not None:
            self._bell.abandon()

    def take_all(self) -> None:
        """Append everything that is waiting. What cannot be appended now stays, with what comes behind it for the same
        log, and is tried at the next ring."""
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
                _LOGGER.error("%s: postings have to wait: %s", self._folder, error)

    def _waiting(self) -> list[Path]:
        """The postings, those that were begun first."""
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
        """Append a posting, or refuse it. One that has to wait holds its log up, for those that come behind it: if a
        later number of its producer overtook it, it would count as appended."""
        taken = path.with_suffix(TAKEN_SUFFIX)
        try:
            if held_up and self._log_of(path) in held_up:
                return
            if path != taken:
                self._files.rename(path, taken)
        except FileNotFoundError:
            return  # the poster has thought better of it
        try:
            self._finish(taken)
        except _WRONG as error:
            _LOGGER.warning("%s: refused: %s", taken, error)
            self._refuse(taken, str(error))
        except StoreClosed:
            raise
        except (OSError, TimestoneError) as error:
            _LOGGER.error("%s: a posting has to wait: %s", taken, error)
            held_up.add(self._log_of(taken))

    def _log_of(self, path: Path) -> str:
        """The folder of the log that a posting is for; empty for what is none. Raises OSError."""
        try:
            posting = Posting.decode(self._files.read_file(path), path)
        except _WRONG:
            return ""
        return names.log_folder(posting.log, posting.partition)

    def _finish(self, taken: Path) -> None:
        posting = Posting.decode(self._files.read_file(taken), taken)
        key, documents = posting.id.key, self._store.documents
        if taken.stem != posting.id.stem:
            raise CorruptLog(taken, f"it holds posting {posting.id.stem}")
        progress = Progress.decode(documents.get(SPACE, key), documents.path, key)
        if posting.number > progress.done:
            # Before the first record: a posting is in the log as a whole, or not at all.
            parts = [self._folder / part for part in posting.parts]
            log = self._store.log(posting.log, posting.partition)
            self._check(log, parts)
            if progress.begun != posting.number:
                progress = Progress(progress.done, posting.number, log.end_offset)
                self._put(key, progress)
            self._append(log, posting, parts, progress.since)
            log.sync()
            self._put(key, Progress(posting.number))
        self._files.unlink(taken)
        if not posting.remembered:
            self._files.sync_directory(self._folder)
            documents.put_many(SPACE, {key: None})

    def _check(self, log: Log, parts: list[Path]) -> None:
        """Raise what is wrong with the records."""
        for path in parts:
            try:
                frames = read_frames(self._files, path)
                for frame in frames:
                    longest = int(frame.lengths.max()) + MARK_BYTES
                    if longest > log.config.record_bytes:
                        raise RecordTooLarge(longest, log.config.record_bytes)
                    frame.check_headers()
                    for topic in frame.topics:
                        log.topic_id(topic)
            except FileNotFoundError as error:
                raise CorruptLog(path, "a part of the posting is missing") from error

    def _append(self, log: Log, posting: Posting, parts: list[Path], since: int) -> None:
        there = _appended(log, posting, since)
        number = 0
        for path in parts:
            for frame in read_frames(self._files, path):
                first = there.get(number, 0)
                if first < frame.count:
                    ids = np.array([*map(log.topic_id, frame.topics), NO_TOPIC], dtype=np.uint32)
                    draft = frame.draft(ids, posting.id.mark(number, first), first)
                    log.append_draft(draft, ack=Ack.WRITTEN)
                number += 1

    def _refuse(self, taken: Path, reason: str) -> None:
        """Exchange the posting for the reason, under a name that the poster waits for."""
        refused = taken.with_suffix(REFUSED_SUFFIX)
        unfinished = names.with_suffix(refused, names.TEMPORARY_SUFFIX)
        unfinished.unlink(missing_ok=True)  # what an earlier try has left
        self._files.write_file(unfinished, json.dumps({"reason": reason}).encode())
        self._files.rename(unfinished, refused)
        self._files.sync_directory(self._folder)
        self._files.unlink(taken)

    def _put(self, key: str, progress: Progress) -> None:
        self._store.documents.put_many(SPACE, {key: json.dumps(asdict(progress)).encode()})

    def _remove_left_overs(self) -> None:
        """Remove what queries and posters have left that were killed and never came again."""
        if not self._folder.is_dir():
            return
        oldest_s = time.time() - LEFT_OVER_S
        answers = (self._folder.glob(f"*{suffix}") for suffix in (REFUSED_SUFFIX, READY_SUFFIX))
        for path in [*(self._folder / STAGING_NAME).glob("*"), *itertools.chain(*answers)]:
            try:
                if path.stat().st_mtime < oldest_s:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            except FileNotFoundError:
                continue  # whoever it belonged to has come and removed it
            except OSError as error:
                _LOGGER.warning("%s: nobody needs it, and it could not be removed: %s", path, error)


def _appended(log: Log, posting: Posting, since: int) -> dict[int, int]:
    """How many records of each frame the log has, by the number of the frame."""
    there: dict[int, int] = {}
    bounds = log.segment_bounds()
    reader = log.reader(min(max(since, log.start_offset), log.end_offset))
    while not reader.caught_up:
        try:
            batch = reader.read()
        except CorruptRecord as error:
            reader.seek(error.next_offset)
            continue
        for number in np.flatnonzero(batch.header_lengths).tolist():
            for header in batch.headers_of(number):
                if (marked := posting.id.marked(header)) is not None:
                    frame, first = marked
                    offset = int(batch.offsets[number])
                    end = next(end for base, end in bounds if base <= offset < end)
                    there[frame] = max(there.get(frame, 0), first + end - offset)
    return there
