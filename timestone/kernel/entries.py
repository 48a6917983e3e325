"""The 32-byte index entry: its columns, and nothing about files.

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
entry is invalid because its timestamp is 0, regardless of its checksum."""

import numpy as np
import numpy.typing as npt

ENTRY_BYTES = 32
HEADER_BYTES = 4096
"""The header page of an index file, before its first entry."""
NO_TOPIC = 0xFFFF_FFFF
SHIPPED_FAULTS = (
    "their bytes do not match their checksums",
    "expected times that never decrease",
    "expected topic ids that the log has assigned",
    "a header block is longer than its record",
    "a removed one has bytes or a topic",
)
"""Why `loops.shipped_flags` refuses records."""

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


def entry_position(ordinal: int) -> int:
    """Return the position of an entry in its index file."""
    return HEADER_BYTES + ordinal * ENTRY_BYTES
