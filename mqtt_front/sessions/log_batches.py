"""Records of a log from an offset on, read at a start; damaged and missing ones are skipped."""

from collections.abc import Iterator

from timestone.errors import CorruptRecord, OffsetOutOfRange
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch


def batches_since(log: Log, offset: int, topic: str | None = None) -> Iterator[Batch]:
    """Yield the records from an offset on, or from the nearest existing one; of one topic, or of all. Reads the
    disk."""
    reader = _reader(log, offset, topic)
    while not reader.caught_up:
        try:
            yield reader.read()
        except CorruptRecord as error:
            reader.seek(error.next_offset)
        except OffsetOutOfRange as error:  # retention is already running
            reader.seek(error.start)


def _reader(log: Log, offset: int, topic: str | None) -> Reader:
    while True:
        try:
            return log.reader(min(max(offset, log.start_offset), log.end_offset), topics=topic)
        except OffsetOutOfRange:
            continue  # retention has moved the start in between
