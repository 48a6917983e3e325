"""The index file's fixed parts: header page, checkpoint slots, topic summary, trailer. Bytes in, values out; no file
is touched here.

    0                    header page, 4096 bytes
    4096                 entries, 32 bytes each (timestone/kernel/entries.py)
    4096 + 32 n          sealed only: topic summary, 12 bytes for each topic in id order
    … + 12 t             sealed only: trailer, 128 bytes, the end of the file

    header page                                    slot (at 512 and at 1024, each alone in its sector)
     0  8  magic "TSTINDEX"                          0  8  sequence, from 1; the valid slot with the higher one counts
     8  4  format version                            8  8  entry count  } entries [0, n) and segment bytes [0, m)
    12  4  entry size, 32                           16  8  segment bytes} were durable when this was written
    16  8  log id                                   24  8  reserve ceiling: no reader was shown an offset >= it
    24  8  base offset                              32  8  log id
    32  8  created, microseconds since 1970         40  8  base offset
    40  8  epoch                                    48  4  crc32c of bytes 0 to 47
    48 16  boot id of the kernel that wrote it
    64  4  crc32c of bytes 0 to 63

    Format version 2 of the header page is that of a replicated log, which has two slots more, at 1536 and at 2048; the
    valid one with the higher offset counts: readers are shown the records below it
     0  8  committed offset                         16  8  base offset
     8  8  log id                                   24  4  crc32c of bytes 0 to 23

    trailer
     0  8  magic "TSTSEALD"                         64  8  sealed, microseconds since 1970
     8  4  format version: 1 to 3, see below        72  4  topic summary count
    12  4  flags: 1 = sealed by recovery            76  4  crc32c of the topic summary
    16  8  log id                                   80  4  crc32c of all entries
    24  8  base offset                              84  4  records with a header block
    32  8  entry count                              88  8  bytes of the segment file as stored
    40  8  segment bytes before compression
    48  8  first timestamp                          96  4  generation of the segment file, from 1; 0 if never rewritten
    56  8  last timestamp                          100  4  raw bytes of a frame; 0 if not compressed
                                                   104  4  number of the dictionary, 0 for none
                                                   108  4  crc32c of the seek table (compressed/frame_table.py)
                                                   112  4  records that compaction has removed
                                                   116  8  zero
                                                   124  4  crc32c of bytes 0 to 123

A trailer has version 1 for a segment that was never rewritten, 2 for one that was, 3 for one that compaction has
removed records of.

The crc of the header page lies at byte 64 in every version to come, so a flipped bit in the version field is
damage and not "a newer Timestone"."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from timestone.errors import UnsupportedFormat
from timestone.kernel.entries import ENTRY_BYTES, NO_TOPIC, entry_position
from timestone.kernel.loops import crc32c

FORMAT_VERSION = 1
REPLICATED_VERSION = 2
"""Version of the header page in a replicated log: a reader of version 1 would show what is not committed."""
REWRITTEN_VERSION = 2
"""Version of a trailer whose segment was rewritten: a reader of version 1 would use the wrong segment file."""
COMPACTED_VERSION = 3
"""Version of a trailer whose segment has removed records: a reader of version 2 would return them as empty ones."""
_TRAILER_VERSIONS = (FORMAT_VERSION, REWRITTEN_VERSION, COMPACTED_VERSION)
INDEX_HEADER_BYTES = 68
"""Size of the header; the rest of its page is zeros except for the slots."""
SLOT_POSITIONS = (512, 1024)
SLOT_BYTES = 52
COMMITTED_POSITIONS = (1536, 2048)
TRAILER_BYTES = 128
TRAILER_RECOVERED = 1

_INDEX_MAGIC = b"TSTINDEX"
TRAILER_MAGIC = b"TSTSEALD"
_HEADER = struct.Struct("<8sIIQQqQ16s")
_SLOT = struct.Struct("<QQQQQQ")
_TRAILER = struct.Struct("<8sIIQQQQqqqIIIIQIIIII8x")
_COMMITTED = struct.Struct("<QQQ")
_CRC = struct.Struct("<I")
COMMITTED_BYTES = _COMMITTED.size + _CRC.size
SUMMARY = np.dtype([("topic", "<u4"), ("count", "<u4"), ("first_ordinal", "<u4")])
assert _HEADER.size == 64
assert _SLOT.size == 48
assert _TRAILER.size == 124
assert SUMMARY.itemsize == 12

Summary = npt.NDArray[np.void]


class DamagedIndex(ValueError):
    """A fixed part of an index is invalid. Recovery decides what follows; callers of the engine never see it."""


class IndexHeader(NamedTuple):
    """Identity of an index file. Written once, at its creation."""

    log_id: int
    base_offset: int
    created_us: int
    epoch: int
    boot_id: bytes
    is_replicated: bool = False

    def encode(self) -> bytes:
        """Return the 68 bytes at the front of the header page."""
        version = REPLICATED_VERSION if self.is_replicated else FORMAT_VERSION
        fixed = _HEADER.pack(_INDEX_MAGIC, version, ENTRY_BYTES, *self[:-1])
        return fixed + _CRC.pack(crc32c(fixed))

    @property
    def known_epoch(self) -> int | None:
        """Return the epoch; None if recovery has rewritten the page because the old one was damaged."""
        return self.epoch if any(self.boot_id) else None

    @classmethod
    def decode(cls, page: bytes, path: Path) -> Self:
        """Decode a header page. Raises DamagedIndex, or UnsupportedFormat for a valid header of a newer version."""
        if len(page) < INDEX_HEADER_BYTES:
            raise DamagedIndex(f"only {len(page)} bytes of header")
        magic, version, entry_bytes, log_id, base, created_us, epoch, boot_id = _HEADER.unpack_from(page)
        if _CRC.unpack_from(page, 64)[0] != crc32c(page[:64]):
            raise DamagedIndex("header checksum does not match")
        if magic != _INDEX_MAGIC:
            raise DamagedIndex(f"magic is {magic!r}")
        if version not in (FORMAT_VERSION, REPLICATED_VERSION) or entry_bytes != ENTRY_BYTES:
            raise UnsupportedFormat(path, version, REPLICATED_VERSION)
        return cls(log_id, base, created_us, epoch, boot_id, version == REPLICATED_VERSION)


def plain_page(page: bytes, path: Path) -> bytes:
    """Return the header page of a segment as a log of a single store has it. Raises DamagedIndex,
    UnsupportedFormat."""
    header = IndexHeader.decode(page, path)
    slots = page[INDEX_HEADER_BYTES : COMMITTED_POSITIONS[0]]
    return (header._replace(is_replicated=False).encode() + slots).ljust(len(page), b"\0")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Extent of the durable records at some moment, and the reserve ceiling: no reader has seen an offset at or
    above it."""

    sequence: int
    entry_count: int
    segment_bytes: int
    ceiling: int

    def closes(self, base_offset: int) -> bool:
        """Return whether the segment was closed here: all that readers were shown is durable. While a process writes,
        the ceiling is higher."""
        return self.entry_count > 0 and self.ceiling == base_offset + self.entry_count

    @property
    def position(self) -> int:
        """Return the position of the slot: the two alternate, so a torn write leaves the older one intact."""
        return SLOT_POSITIONS[self.sequence % len(SLOT_POSITIONS)]

    def encode(self, log_id: int, base_offset: int) -> bytes:
        fixed = _SLOT.pack(
            self.sequence, self.entry_count, self.segment_bytes, self.ceiling, log_id, base_offset
        )
        return fixed + _CRC.pack(crc32c(fixed))

    @classmethod
    def latest(cls, page: bytes, log_id: int, base_offset: int) -> "Checkpoint | None":
        """Return the newest valid checkpoint of a header page; None if there is none."""
        found = [
            cls(*values) for *values, owner, base in _slots(page) if (owner, base) == (log_id, base_offset)
        ]
        return max(found, key=lambda checkpoint: checkpoint.sequence, default=None)

    @staticmethod
    def holds(slot: bytes) -> bool:
        """Return whether the bytes match their checksum."""
        return len(slot) == SLOT_BYTES and bool(_CRC.unpack_from(slot, 48)[0] == crc32c(slot[:48]))

    @staticmethod
    def log_ids(page: bytes) -> list[int]:
        """Return the log ids in the checkpoints of a header page, for a damaged header."""
        return [owner for *_, owner, _ in _slots(page)]


def _slots(page: bytes) -> Iterator[tuple[int, ...]]:
    """Yield the fields of the valid slots."""
    for position in SLOT_POSITIONS:
        slot = page[position : position + SLOT_BYTES]
        if Checkpoint.holds(slot):
            values = _SLOT.unpack_from(slot)
            if values[0] > 0:
                yield values


def committed_slot(offset: int, log_id: int, base_offset: int) -> bytes:
    """Return a slot with the committed offset of a replicated log."""
    fixed = _COMMITTED.pack(offset, log_id, base_offset)
    return fixed + _CRC.pack(crc32c(fixed))


def committed_offset(page: bytes, log_id: int, base_offset: int) -> int | None:
    """Return the committed offset in the header page of a replicated log; None if no slot is valid."""
    found = [
        _COMMITTED.unpack_from(page, at)
        for at in COMMITTED_POSITIONS
        if len(page) >= at + COMMITTED_BYTES
        and _CRC.unpack_from(page, at + _COMMITTED.size)[0] == crc32c(page[at : at + _COMMITTED.size])
    ]
    return max((offset for offset, *owner in found if owner == [log_id, base_offset]), default=None)


class FrameLayout(NamedTuple):
    """Compression of a segment file: raw bytes of a frame, and number of the dictionary (0 for none)."""

    frame_bytes: int
    dictionary: int
    table_crc: int


class Trailer(NamedTuple):
    """Trailer of a sealed index."""

    log_id: int
    base_offset: int
    entry_count: int
    segment_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    sealed_us: int
    summary_count: int
    summary_crc: int
    entries_crc: int
    headed_count: int
    stored_bytes: int
    generation: int = 0
    """Generation of the segment file: the number of its rewrites (timestone/writing/segment_swap.py)."""
    frames: FrameLayout | None = None
    """None for an uncompressed segment file."""
    removed_count: int = 0
    """Number of records removed by compaction; their entries remain."""
    recovered: bool = False

    def encode(self) -> bytes:
        *values, frames, removed_count, recovered = self
        head = TRAILER_MAGIC, self._version, TRAILER_RECOVERED if recovered else 0
        fixed = _TRAILER.pack(*head, *values, *(frames or (0, 0, 0)), removed_count)
        return fixed + _CRC.pack(crc32c(fixed))

    @classmethod
    def decode(cls, data: bytes, path: Path) -> Self:
        """Decode a trailer. Raises DamagedIndex, or UnsupportedFormat for a valid trailer of a newer version."""
        if len(data) != TRAILER_BYTES:
            raise DamagedIndex("no room for a trailer")
        magic, version, flags, *values, frame_bytes, dictionary, table_crc, removed = _TRAILER.unpack_from(
            data
        )
        if magic != TRAILER_MAGIC or _CRC.unpack_from(data, 124)[0] != crc32c(data[:124]):
            raise DamagedIndex("no trailer")
        if version not in _TRAILER_VERSIONS or flags & ~TRAILER_RECOVERED:
            raise UnsupportedFormat(path, version, COMPACTED_VERSION)
        return cls(  # type: ignore[misc]
            *values,
            frames=FrameLayout(frame_bytes, dictionary, table_crc) if frame_bytes else None,
            removed_count=removed,
            recovered=bool(flags & TRAILER_RECOVERED),
        )

    @property
    def _version(self) -> int:
        """Return the lowest version that expresses all fields: an older Timestone refuses only what it would
        misread."""
        if self.removed_count:
            return COMPACTED_VERSION
        return REWRITTEN_VERSION if self.generation else FORMAT_VERSION

    @property
    def file_bytes(self) -> int:
        """Return the size of an index file with this trailer."""
        return entry_position(self.entry_count) + self.summary_count * SUMMARY.itemsize + TRAILER_BYTES


def topics_used(topic_ids: npt.NDArray[np.uint32]) -> int:
    """Return one more than the highest topic id; 0 if no record has a topic."""
    named = topic_ids[topic_ids != NO_TOPIC]
    return int(named.max()) + 1 if len(named) else 0


class TopicCounts:
    """Computes the topic summary of a segment from chunks of its topic column.

    Without a Python step for each topic and without sorting rows: with a hundred thousand topics, either takes
    longer than writing the records."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.uint32)
        self._firsts = np.zeros(0, dtype=np.uint32)
        self._others: dict[int, tuple[int, int]] = {}

    def add(self, topic_ids: npt.NDArray[np.uint32], first_ordinal: int) -> None:
        """Count a chunk whose first record has this ordinal. Damaged records may be left out: the first ordinal of a
        topic is then a lower bound."""
        if len(topic_ids) == 0:
            return
        topic_ids = np.ascontiguousarray(topic_ids)
        highest = int(topic_ids.max())
        if highest >= _NEAR_IDS:
            near = topic_ids < _NEAR_IDS
            self._add_others(topic_ids[~near], first_ordinal + np.flatnonzero(~near))
            self._add_near(topic_ids[near], first_ordinal + np.flatnonzero(near))
            return
        self._make_room(highest + 1)
        if highest > len(topic_ids) * _SPARSE:
            self._add_near(topic_ids, first_ordinal + np.arange(len(topic_ids)))
            return
        counts = np.bincount(topic_ids)
        topics = np.flatnonzero(counts)
        if not self._counts[topics].all():
            self._note_firsts(topic_ids, first_ordinal + np.arange(len(topic_ids)))
        self._counts[topics] += counts[topics].astype(np.uint32)

    def _add_near(self, topic_ids: npt.NDArray[np.uint32], ordinals: npt.NDArray[np.int64]) -> None:
        """Count topics that have a counter each."""
        if len(topic_ids):
            self._make_room(int(topic_ids.max()) + 1)
            self._note_firsts(topic_ids, ordinals)
            topics, counts = np.unique(topic_ids, return_counts=True)
            self._counts[topics] += counts.astype(np.uint32)

    def _note_firsts(self, topic_ids: npt.NDArray[np.uint32], ordinals: npt.NDArray[np.int64]) -> None:
        """Note the first ordinal of topics that were not counted before."""
        new = self._counts[topic_ids] == 0
        # Backwards, so that the ordinal of the first record of a topic remains.
        self._firsts[topic_ids[new][::-1]] = ordinals[new][::-1]

    def _add_others(self, topic_ids: npt.NDArray[np.uint32], ordinals: npt.NDArray[np.int64]) -> None:
        """Count records without a topic, and ids too high for a counter."""
        topics, places, counts = np.unique(topic_ids, return_index=True, return_counts=True)
        firsts = ordinals[places].tolist()
        for topic, first, count in zip(topics.tolist(), firsts, counts.tolist(), strict=True):
            before, earliest = self._others.get(topic, (0, first))
            self._others[topic] = (before + count, earliest)

    def _make_room(self, count: int) -> None:
        if count > len(self._counts):
            more = max(count, 2 * len(self._counts)) - len(self._counts)
            self._counts, self._firsts = np.pad(self._counts, (0, more)), np.pad(self._firsts, (0, more))

    def summary(self) -> Summary:
        """Return the summary, sorted by topic id."""
        topics = np.flatnonzero(self._counts)
        rows = np.zeros(len(topics) + len(self._others), dtype=SUMMARY)
        near = rows[: len(topics)]
        near["topic"], near["count"], near["first_ordinal"] = (
            topics,
            self._counts[topics],
            self._firsts[topics],
        )
        rows[len(topics) :] = [(topic, *self._others[topic]) for topic in sorted(self._others)]
        return rows


_NEAR_IDS = 1 << 22
"""Topics with lower ids have a counter each: 32 MiB at most, for any ids."""
_SPARSE = 8
"""If the highest id exceeds the number of records of a chunk by this factor, they are sorted instead of counted."""
