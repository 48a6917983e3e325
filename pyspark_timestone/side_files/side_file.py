"""Side file: a sealed segment as a Parquet file. Names it, writes it, and verifies that it belongs to its segment.

For readers of whole columns: Spark reads Parquet in Java, by column, and skips what a filter excludes. The format is
docs/formats/side-file.md. Needs pyarrow, not PySpark."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from timestone import LogView
from timestone.disk import access
from timestone.disk.files import Files
from timestone.format import names
from timestone.reading.arrow import SCHEMA
from timestone.record import FLAG_TOMBSTONE
from timestone.segment import Segment

FORMAT_VERSION = 2
_EMPTY_TOMBSTONES_VERSION = 1
"""Differs only in tombstones: their value was empty instead of null."""
METADATA_KEY = "timestone.segment"
SUFFIX = ".parquet"

_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
"""A row group is the unit that a filter skips and that a reader holds in memory."""
_READ_RECORDS = 1 << 16
_READ_BYTES = 16 << 20
_LAYOUT = {
    "compression": "zstd",
    "use_dictionary": ["log", "partition", "topic", "flags"],
    # Both only increase: the differences take little space.
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_page_index": True,
    "write_page_checksum": True,
    "store_schema": False,
}


@dataclass(frozen=True, slots=True)
class SegmentIdentity:
    """Identity of a sealed segment by what its index states of its records. Any change of them changes it;
    compression does not."""

    log: str
    partition: int
    log_id: int
    base_offset: int
    entry_count: int
    removed_count: int
    entries_crc: int
    """Checksum of all index entries, each of which has the checksum of its record."""
    first_timestamp_us: int
    last_timestamp_us: int

    @classmethod
    def of(cls, log: LogView, segment: Segment) -> Self | None:
        """Return the identity; None for a segment that is growing, that has no record left, or some of whose records
        belong to the next one after a failed flush."""
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
        """Return one more than the last offset."""
        return self.base_offset + self.entry_count

    @property
    def row_count(self) -> int:
        """Return the number of existing records."""
        return self.entry_count - self.removed_count

    @property
    def file_name(self) -> str:
        """Return the name of its side file."""
        return f"{self.base_offset:020d}-{self.entries_crc:08x}{SUFFIX}"

    def to_json(self, version: int = FORMAT_VERSION) -> str:
        """Return the identity as stored in a side file of this version."""
        texts = {"log_id": f"{self.log_id:016x}", "entries_crc": f"{self.entries_crc:08x}"}
        return json.dumps({"version": version, **asdict(self), **texts}, sort_keys=True)


def sealed_segments(log: LogView) -> list[SegmentIdentity]:
    """Return the segments of a log that can have a side file, in order."""
    found = log.look_up(lambda history: [SegmentIdentity.of(log, segment) for segment in history.segments])
    return [identity for identity in found if identity is not None]


def write_side_file(log: LogView, segment: SegmentIdentity, path: Path, files: Files) -> bool:
    """Write the records of `segment` to `path`, atomically and durably. Return False, with nothing written, if the
    segment was deleted or rewritten in between. Raises CorruptRecord for a record that fails verification,
    OffsetOutOfRange if retention was faster, OSError."""
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    try:
        row_count = 0
        access.ensure_file(temporary)
        with pq.ParquetWriter(temporary, SCHEMA, **_LAYOUT) as writer:
            for group in _row_groups(log, segment):
                writer.write_table(group, row_group_size=group.num_rows)
                row_count += group.num_rows
            writer.add_key_value_metadata({METADATA_KEY: segment.to_json()})
        log.refresh()
        # All records are of one generation if it still exists: a generation never comes back.
        if row_count != segment.row_count or segment not in sealed_segments(log):
            return False
        _sync(files, temporary)
        files.rename(temporary, path)
        files.sync_directory(path.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def what_is_wrong(path: Path, segment: SegmentIdentity) -> str:
    """Return why the file is not the side file of `segment`; empty if it is. Reads the footer; pages have checksums
    of their own. Raises FileNotFoundError."""
    try:
        footer = pq.read_metadata(path)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        return " ".join(str(error).split())
    said = (footer.metadata or {}).get(METADATA_KEY.encode(), b"")
    if said == segment.to_json(_EMPTY_TOMBSTONES_VERSION).encode():
        if _may_have_tombstones(footer):
            return f"it is of version {_EMPTY_TOMBSTONES_VERSION}, in which the value of a tombstone is empty"
    elif said != segment.to_json().encode():
        return f"it says that it is of {said.decode(errors='replace') or 'nothing'}"
    if footer.num_rows != segment.row_count:
        return f"it has {footer.num_rows} rows of {segment.row_count}"
    return ""


def _may_have_tombstones(footer: pq.FileMetaData) -> bool:
    flags = footer.num_columns - 1  # the last of SCHEMA
    chunks = [footer.row_group(group).column(flags) for group in range(footer.num_row_groups)]
    return any(not one.is_stats_set or one.statistics.max >= FLAG_TOMBSTONE for one in chunks)


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
        # Where compaction has removed the rest, the next record belongs to another segment.
        batch = batch.select(batch.offsets < segment.end_offset)
        if batch:
            yield batch.to_arrow()


def _sync(files: Files, path: Path) -> None:
    fd = files.open(path, write=True)
    try:
        files.fdatasync(fd)
    finally:
        files.close(fd)
