"""A sealed segment as a Parquet file: its name, what ties it to its segment, how it is written and known again.

For readers of whole columns: Spark reads Parquet in Java, a column at a time, and skips what a filter leaves out. The
format is docs/formats/side-file.md. Needs pyarrow and no PySpark."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from timestone import LogView
from timestone.disk.files import Files
from timestone.format import names
from timestone.reading.arrow import SCHEMA
from timestone.segment import Segment

FORMAT_VERSION = 1
METADATA_KEY = "timestone.segment"
SUFFIX = ".parquet"

_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
"""A row group is what a filter skips, and what a reader holds in memory."""
_READ_RECORDS = 1 << 16
_READ_BYTES = 16 << 20
_LAYOUT = {
    "compression": "zstd",
    "use_dictionary": ["log", "partition", "topic", "flags"],
    # Both only rise: the differences take next to nothing.
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_page_index": True,
    "write_page_checksum": True,
    "store_schema": False,
}


@dataclass(frozen=True, slots=True)
class SegmentIdentity:
    """A sealed segment by what its index says of its records. Whatever changes them changes this; compression does
    not."""

    log: str
    partition: int
    log_id: int
    base_offset: int
    entry_count: int
    removed_count: int
    entries_crc: int
    """Of all index entries, each of which has the crc of its record."""
    first_timestamp_us: int
    last_timestamp_us: int

    @classmethod
    def of(cls, log: LogView, segment: Segment) -> Self | None:
        """None for a segment that still grows, of which no record is left, or of which some count as the next one's
        (a failed flush made their owner write them again)."""
        trailer = segment.trailer
        if trailer is None or trailer.entry_count in (0, trailer.removed_count):
            return None
        if trailer.entry_count != segment.count:
            return None
        return cls(
            log.name,
            log.partition,
            log.id,
            segment.base_offset,
            trailer.entry_count,
            trailer.removed_count,
            trailer.entries_crc,
            trailer.first_timestamp_us,
            trailer.last_timestamp_us,
        )

    @property
    def end_offset(self) -> int:
        """One more than the last offset."""
        return self.base_offset + self.entry_count

    @property
    def row_count(self) -> int:
        """Records that are there."""
        return self.entry_count - self.removed_count

    @property
    def file_name(self) -> str:
        """Of its side file."""
        return f"{self.base_offset:020d}-{self.entries_crc:08x}{SUFFIX}"

    def to_json(self) -> str:
        """What the side file says of itself."""
        texts = {"log_id": f"{self.log_id:016x}", "entries_crc": f"{self.entries_crc:08x}"}
        return json.dumps({"version": FORMAT_VERSION, **asdict(self), **texts}, sort_keys=True)


def sealed_segments(log: LogView) -> list[SegmentIdentity]:
    """The segments of a log that can have a side file, in order."""
    found = log.look_up(lambda history: [SegmentIdentity.of(log, segment) for segment in history.segments])
    return [identity for identity in found if identity is not None]


def write_side_file(log: LogView, segment: SegmentIdentity, path: Path, files: Files) -> bool:
    """Write the records of `segment` to `path`: there and whole, also after a power loss, or not there at all.

    False, and nothing is written, when the segment was deleted or rewritten meanwhile. Raises CorruptRecord for one
    that cannot be proved, OffsetOutOfRange when retention was faster, OSError.
    """
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    try:
        row_count = 0
        with pq.ParquetWriter(temporary, SCHEMA, **_LAYOUT) as writer:
            for group in _row_groups(log, segment):
                writer.write_table(group, row_group_size=group.num_rows)
                row_count += group.num_rows
            writer.add_key_value_metadata({METADATA_KEY: segment.to_json()})
        log.refresh()
        # What was read is of one generation if that is still there: none ever comes back.
        if row_count != segment.row_count or segment not in sealed_segments(log):
            return False
        _sync(files, temporary)
        files.rename(temporary, path)
        files.sync_directory(path.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def what_is_wrong(path: Path, segment: SegmentIdentity) -> str:
    """Why the file is not the side file of `segment`; empty when it is. Reads the footer; pages have checksums of
    their own. Raises FileNotFoundError."""
    try:
        footer = pq.read_metadata(path)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        return " ".join(str(error).split())
    said = (footer.metadata or {}).get(METADATA_KEY.encode(), b"")
    if said != segment.to_json().encode():
        return f"it says that it is of {said.decode(errors='replace') or 'nothing'}"
    if footer.num_rows != segment.row_count:
        return f"it has {footer.num_rows} rows of {segment.row_count}"
    return ""


def _row_groups(log: LogView, segment: SegmentIdentity) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    for batch in _batches(log, segment):
        gathered.append(batch)
        full = sum(one.num_rows for one in gathered) >= _GROUP_ROWS
        if full or sum(one.nbytes for one in gathered) >= _GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


def _batches(log: LogView, segment: SegmentIdentity) -> Iterator[pa.RecordBatch]:
    offset = segment.base_offset
    while offset < segment.end_offset:
        most = min(_READ_RECORDS, segment.end_offset - offset)
        batch = log.read(offset, max_records=most, max_bytes=_READ_BYTES)
        offset = batch.next_offset
        # Where compaction has removed the rest, the next record is another segment's.
        batch = batch.select(batch.offsets < segment.end_offset)
        if batch:
            yield batch.to_arrow()


def _sync(files: Files, path: Path) -> None:
    fd = files.open(path, write=True)
    try:
        files.fdatasync(fd)
    finally:
        files.close(fd)
