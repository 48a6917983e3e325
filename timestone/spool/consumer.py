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
from timestone.spool.doorbell import Doorbell
from timestone.spool.format import MARK_BYTES, Frame, Posting, PostingId, check_producer, read_frames
from timestone.writing.write_batch import WriteBatch

SPACE = names.INBOX_SPACE
"""Namespace in the catalogue; a key is `<log>-<partition>/<producer>`."""
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


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a producer in the catalogue."""

    done: int = -1
    """Postings up to this number are appended."""
    begun: int | None = None
    """Number of the posting that was being appended; None if none."""
    since: int = 0
    """Offset below which the log holds no record of that posting."""

    @classmethod
    def decode(cls, document: bytes | None, path: Path, key: str) -> "Progress":
        """Decode a document of the catalogue. Raises CorruptLog."""
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
            raise CorruptLog(path, f"the progress of producer {key!r} cannot be read: {error!r}") from error


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
        key, documents = posting.key, self._store.documents
        with self._lock:
            log = self._store.log(posting.log, posting.partition)
            progress = Progress.decode(documents.get(SPACE, key), documents.path, key)
            if posting.number <= progress.done:
                return None
            if not frame.count:
                return range(log.end_offset, log.end_offset)
            _check_frame(log, frame, 0, f"a batch for {log.folder.name}")
            if progress.begun != posting.number:
                progress = Progress(progress.done, posting.number, log.end_offset)
                self._put(key, progress)
                there = 0
            else:
                there = _appended(log, posting, progress.since).get(0, 0)
            offsets = range(log.end_offset, log.end_offset)
            if there < frame.count:
                offsets = log.append_batch(_marked(log, posting, frame, 0, there), ack=Ack.WRITTEN)
            log.sync()
            self._put(key, Progress(posting.number))
            return offsets

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
        progress = Progress.decode(documents.get(SPACE, key), documents.path, key)
        if posting.number > progress.done:
            # Check all parts before the first record: a posting is appended whole or not at all.
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
        """Raise an error for records that the log cannot take."""
        for number, path in enumerate(parts):
            first = 0
            try:
                for frame in read_frames(self._files, path):
                    where = f"part {number} of a posting to {log.name}-{log.partition}"
                    _check_frame(log, frame, first, where)
                    first += frame.count
            except FileNotFoundError as error:
                raise CorruptLog(path, "a part of the posting is missing") from error

    def _append(self, log: Log, posting: Posting, parts: list[Path], since: int) -> None:
        there = _appended(log, posting.id, since)
        number = 0
        for path in parts:
            for frame in read_frames(self._files, path):
                first = there.get(number, 0)
                if first < frame.count:
                    log.append_batch(_marked(log, posting.id, frame, number, first), ack=Ack.WRITTEN)
                number += 1

    def _refuse(self, taken: Path, reason: str) -> None:
        """Replace the posting by a `.refused` file with the reason, which its producer waits for."""
        refused = taken.with_suffix(REFUSED_SUFFIX)
        unfinished = names.with_suffix(refused, names.TEMPORARY_SUFFIX)
        unfinished.unlink(missing_ok=True)  # of an earlier try
        self._files.write_file(unfinished, json.dumps({"reason": reason}).encode())
        self._files.rename(unfinished, refused)
        self._files.sync_directory(self._folder)
        self._files.unlink(taken)

    def _put(self, key: str, progress: Progress) -> None:
        self._store.documents.put_many(SPACE, {key: json.dumps(asdict(progress)).encode()})

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


def _check_frame(log: Log, frame: Frame, first: int, where: str) -> None:
    """Raise an error for records that the log cannot take. first: number of the first one, for the message."""
    longest = int(frame.lengths.max()) + MARK_BYTES
    if longest > log.config.record_bytes:
        what = f"record {first + int(frame.lengths.argmax())} of {where}"
        raise RecordTooLarge(longest, log.config.record_bytes, what)
    frame.check_headers()
    for topic in frame.topics:
        log.topic_id(topic)


def _marked(log: Log, posting: PostingId, frame: Frame, number: int, first: int) -> WriteBatch:
    """Return the records of a frame from `first` on, the first with the mark of its posting."""
    ids = np.array([*map(log.topic_id, frame.topics), NO_TOPIC], dtype=np.uint32)
    return frame.write_batch(ids, posting.mark(number, first), first)


def _appended(log: Log, posting: PostingId, since: int) -> dict[int, int]:
    """Return the number of appended records by frame number."""
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
                if (marked := posting.marked(header)) is not None:
                    frame, first = marked
                    offset = int(batch.offsets[number])
                    end = next(end for base, end in bounds if base <= offset < end)
                    there[frame] = max(there.get(frame, 0), first + end - offset)
    return there
