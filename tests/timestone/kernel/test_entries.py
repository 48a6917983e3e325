"""The layout of an entry. test_entry_checksum.py tests its validity."""

import struct

import numpy as np

from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC


def test_entry_has_the_bytes_that_the_format_page_shows() -> None:
    values = (0x01020304, 0x05060708, 0x1112131415161718, NO_TOPIC, 0x2122, 0x3132, 0x41424344, 0x51525354)
    entries = np.zeros(1, dtype=ENTRY)
    entries[0] = values
    assert entries.tobytes() == struct.pack("<IIqIHHII", *values)


def test_entries_lie_back_to_back_and_never_straddle_a_sector() -> None:
    assert ENTRY.itemsize == ENTRY_BYTES == 32
    assert 512 % ENTRY_BYTES == 0
