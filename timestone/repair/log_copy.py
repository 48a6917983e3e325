"""Newly written log of records that keep their offsets, times, topics and headers. Writes records back to back into
sealed segments, with a new segment at each missing offset. `salvage.py` decides which records."""

from contextlib import closing
from pathlib import Path

import numpy as np

from timestone.config import SEGMENT_BYTES_MAX
from timestone.disk.files import Files
from timestone.format import names
from timestone.format.identity import LogIdentity
from timestone.format.topics import TopicDictionary, create_topics_file
from timestone.index import IndexHeader
from timestone.kernel.entries import Entries
from timestone.reading.stored_bytes import StoredBytes
from timestone.record import FLAG_REMOVED
from timestone.writing.segment_writer import SegmentWriter


class LogCopy:
    """Folder that is being filled. Add in order of offset, then `finish`."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        identity: LogIdentity,
        *,
        now_us: int,
        boot_id: bytes,
        create: bool = True,
    ) -> None:
        """Create the folder; without `create`, add to one that has its topics. Raises OSError."""
        self.records = 0
        self.bytes = 0
        self.later_count = 0
        """Number of records whose time was raised because an earlier record has a later one: times never decrease in
        a log."""
        self._files = files
        self._folder = folder
        self._identity = identity
        self._now_us = now_us
        self._boot_id = boot_id
        self._last_us = 0
        self._writer: SegmentWriter | None = None
        if create:
            files.make_directory(folder)
            create_topics_file(files, folder / names.TOPICS_NAME, identity)
            files.sync_directory(folder)

    def write_topics(self, topic_names: list[str | None]) -> None:
        """Give each topic its former id; None takes an id whose name is lost. Call before any record is copied."""
        with closing(TopicDictionary(self._files, self._folder / names.TOPICS_NAME, writable=True)) as topics:
            for number, name in enumerate(topic_names):
                if name is None or topics.add(name) != number:
                    topics.take_up_to(number + 1)
            topics.write_added()
            topics.sync()

    def begin_segment(self) -> None:
        """Begin a segment with the next record."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.seal_files(self._now_us)
            finally:
                writer.close()

    def add(self, first_offset: int, entries: Entries, data: bytes, position: int, *, epoch: int) -> None:
        """Add consecutive records: their entries, and their bytes, which begin at `position` of their segment.
        Raises OSError."""
        entries, data = _back_to_back(entries, data, position)
        writer = self._writer
        if writer is not None and (
            first_offset != writer.end_offset or writer.size_bytes + len(data) > SEGMENT_BYTES_MAX
        ):
            self.begin_segment()
            writer = None
        if writer is None:
            header = IndexHeader(self._identity.log_id, first_offset, self._now_us, epoch, self._boot_id)
            writer = self._writer = SegmentWriter(self._files, self._folder, header)
        times = np.maximum.accumulate(np.maximum(entries["timestamp_us"], self._last_us))
        self.later_count += int(np.count_nonzero(times != entries["timestamp_us"]))
        entries["timestamp_us"] = times
        place = {"ordinal": writer.count, "position": writer.size_bytes}
        writer.write(StoredBytes((data,), len(data)), writer.seal.placed(entries.tobytes(), **place))
        self._last_us = int(times[-1])
        self.records += int(np.count_nonzero((entries["flags"] & FLAG_REMOVED) == 0))
        self.bytes += len(data)

    def finish(self) -> None:
        """Seal the rest; everything is durable on return."""
        self.begin_segment()

    def close(self) -> None:
        """Close the files, finished or not."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _back_to_back(entries: Entries, data: bytes, position: int) -> tuple[Entries, bytes]:
    """Return the same records with positions from 0 without gaps."""
    entries = np.array(entries)
    starts = entries["position"].astype(np.int64) - position
    lengths = entries["length"].astype(np.int64)
    ends = np.cumsum(lengths)
    if not (starts == ends - lengths).all():
        pieces = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        data = b"".join(data[start:end] for start, end in pieces)
    entries["position"] = ends - lengths
    return entries, data[: int(ends[-1])]
