"""Appending records of a producer once for each of its numbers, whichever process crashes and whichever replica leads.

Each step is durable before the next: a document notes that a number has begun and the end offset of the log; its
records are appended, the first of each frame with a mark; a document notes that it is done. A later try finds by the
marks from the noted offset on how many records are there. A torn frame ends where its segment ends, on
replicas where its generation does."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from timestone.config import Ack
from timestone.disk.catalog import StoredDocuments
from timestone.disk.json_document import integer, json_object
from timestone.errors import CorruptLog, CorruptRecord, RecordTooLarge
from timestone.format.names import INBOX_SPACE
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.spool.format import MARK_BYTES, Frame, PostingId
from timestone.writing.write_batch import WriteBatch

if TYPE_CHECKING:
    from timestone.replication.replicated_log import ReplicatedLog


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a producer: a document of the namespace INBOX_SPACE with the key `<log>-<partition>/<producer>`."""

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


def progress_of(documents: StoredDocuments, posting: PostingId) -> Progress:
    """Return how far a producer is. Raises CorruptLog, OSError."""
    return Progress.decode(documents.get(INBOX_SPACE, posting.key), documents.path, posting.key)


def append_once(
    log: Log, documents: StoredDocuments, posting: PostingId, frames: Iterable[Frame]
) -> range | None:
    """Append frames that were checked, unless the number was appended before; durable on return. Return the offsets of
    the last frame that was appended now, None for a number that is done. One call at a time for each log. Raises what
    `Log.append_batch` does, NotLeader, OSError."""
    # First: what another leader appends in between would be appended again.
    append = _appender(log)
    progress = progress_of(documents, posting)
    if posting.number <= progress.done:
        return None
    there: dict[int, int] = {}
    if progress.begun == posting.number:
        there = _appended(log, posting, progress.since)
    else:
        _put(documents, posting, Progress(progress.done, posting.number, log.end_offset))
    offsets = range(log.end_offset, log.end_offset)
    for number, frame in enumerate(frames):
        first = there.get(number, 0)
        if first < frame.count:
            offsets = append(_marked(log, posting, frame, number, first))
    log.sync()
    _put(documents, posting, Progress(posting.number))
    return offsets


def append_frame(log: Log, documents: StoredDocuments, posting: PostingId, frame: Frame) -> range | None:
    """Check one frame and append it, as `append_once`; one without records is none."""
    if posting.number <= progress_of(documents, posting).done:
        return None
    if not frame.count:
        return range(log.end_offset, log.end_offset)
    _check_frame(log, frame, 0, f"a batch for {log.folder.name}")
    return append_once(log, documents, posting, [frame])


def check_frames(log: Log, frames: Iterable[Frame], part: int) -> None:
    """Raise an error for frames of a part that the log cannot take. part: its number in the posting."""
    first = 0
    for frame in frames:
        _check_frame(log, frame, first, f"part {part} of a posting to {log.name}-{log.partition}")
        first += frame.count


def _appender(log: Log) -> Callable[[WriteBatch], range]:
    """Return what appends a batch. Raises NotLeader."""
    if log.is_replicated:
        return cast("ReplicatedLog", log).appender()
    return lambda write_batch: log.append_batch(write_batch, ack=Ack.WRITTEN)


def _put(documents: StoredDocuments, posting: PostingId, progress: Progress) -> None:
    documents.put_many(INBOX_SPACE, {posting.key: json.dumps(asdict(progress)).encode()})


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
    # A write that was cut is the last one of a process, or of a generation of replicas.
    bounds = cast("ReplicatedLog", log).unbroken() if log.is_replicated else log.segment_bounds()
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
