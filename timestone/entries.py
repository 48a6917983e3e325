"""The 32-byte index entry: its columns, its checksum, and nothing about files.

     0  4  position       of the record in its segment
     4  4  length         stored bytes, header block included
     8  8  timestamp_us   append time, never decreasing within a log, never 0
    16  4  topic          topic id; NO_TOPIC for none
    20  2  header_length  bytes of the header block at the front of the record
    22  2  flags
    24  4  data_crc       crc32c of the stored bytes
    28  4  entry_crc      crc32c of (log id u64, base offset u64, ordinal u32, bytes 0 to 27)

All little endian. 32 bytes at a multiple of 32 never straddle a sector or a page, so an entry is torn only as
a whole. The salt in `entry_crc` rejects pages of another log, another segment or another place. An all-zero
entry is invalid because its timestamp is 0, whatever its checksum."""

import struct

import numpy as np
import numpy.typing as npt

from timestone.crc import crc32c, row_contributions

ENTRY_BYTES = 32
NO_TOPIC = 0xFFFF_FFFF

ENTRY = np.dtype(
    [
        ("position", "<u4"),
        ("length", "<u4"),
        ("timestamp_us", "<i8"),
        ("topic", "<u4"),
        ("header_length", "<u2"),
        ("flags", "<u2"),
        ("data_crc", "<u4"),
        ("entry_crc", "<u4"),
    ]
)
assert ENTRY.itemsize == ENTRY_BYTES

Entries = npt.NDArray[np.void]
_SALT = struct.Struct("<QQ")
_ORDINAL = struct.Struct("<I")
_FEW = 12  # below this many entries one library call each beats the fixed cost of the numpy way


class EntrySeal:
    """Computes and checks the `entry_crc` of one segment's entries."""

    __slots__ = ("_salt_crc", "_zero_row_crc")

    def __init__(self, log_id: int, base_offset: int) -> None:
        self._salt_crc = crc32c(_SALT.pack(log_id, base_offset))
        self._zero_row_crc = np.uint32(crc32c(bytes(ENTRY_BYTES), self._salt_crc))

    def crcs(self, entries: Entries, first_ordinal: int) -> npt.NDArray[np.uint32]:
        """What the `entry_crc` of each entry has to be when the first of them has this ordinal."""
        count = len(entries)
        rows = np.empty((count, ENTRY_BYTES), dtype=np.uint8)
        rows[:, :4] = (
            np.arange(first_ordinal, first_ordinal + count, dtype="<u4").view(np.uint8).reshape(count, 4)
        )
        rows[:, 4:] = entries.view(np.uint8).reshape(count, ENTRY_BYTES)[:, :28]
        if count < _FEW:
            flat = rows.tobytes()
            crcs = [
                crc32c(flat[at : at + ENTRY_BYTES], self._salt_crc) for at in range(0, len(flat), ENTRY_BYTES)
            ]
            return np.array(crcs, dtype=np.uint32)
        return row_contributions(rows) ^ self._zero_row_crc

    def close(self, entries: Entries, first_ordinal: int) -> None:
        """Fill in `entry_crc`; all other columns have their values."""
        entries["entry_crc"] = self.crcs(entries, first_ordinal)

    def close_one(self, unsealed: bytes, ordinal: int) -> bytes:
        """A whole entry from its first 28 bytes; for a draft of one record, where numpy costs more than it
        saves."""
        crc = crc32c(unsealed, crc32c(_ORDINAL.pack(ordinal), self._salt_crc))
        return unsealed + _ORDINAL.pack(crc)

    def valid(self, entries: Entries, first_ordinal: int) -> npt.NDArray[np.bool_]:
        """Which entries hold: the checksum is right for this log, segment and ordinal."""
        entries = np.ascontiguousarray(entries)
        good = self.crcs(entries, first_ordinal) == entries["entry_crc"]
        return np.asarray(good & (entries["timestamp_us"] > 0), dtype=np.bool_)
