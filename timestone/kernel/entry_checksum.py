"""What makes an index entry one of its own log, segment and ordinal: the salt of its `entry_crc`.

`entries` has the layout, `kernel` the loops; this is the one place that knows what the salt is made of."""

import struct

import numpy as np
import numpy.typing as npt

from timestone.kernel import loops
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import Entries

_SALT = struct.Struct("<QQ")


class EntrySeal:
    """Computes and checks the `entry_crc` of one segment's entries."""

    __slots__ = ("salt_crc",)

    def __init__(self, log_id: int, base_offset: int) -> None:
        self.salt_crc = crc32c(_SALT.pack(log_id, base_offset))
        """The crc32c of log id and base offset, which the crc of every entry continues from."""

    def close(self, entries: Entries, first_ordinal: int) -> None:
        """Fill in `entry_crc`; all other columns have their values."""
        entries["entry_crc"] = self._crcs(entries, first_ordinal)

    def valid(self, entries: Entries, first_ordinal: int) -> npt.NDArray[np.bool_]:
        """Which entries hold: the checksum is right for this log, segment and ordinal."""
        good = self._crcs(entries, first_ordinal) == entries["entry_crc"]
        return np.asarray(good & (entries["timestamp_us"] > 0), dtype=np.bool_)

    def valid_count(self, entries: Entries, first_ordinal: int) -> int:
        """How many entries at the front hold; cheaper than `valid`."""
        return loops.valid_count(np.ascontiguousarray(entries), self.salt_crc, first_ordinal)

    def _crcs(self, entries: Entries, first_ordinal: int) -> npt.NDArray[np.uint32]:
        crcs = loops.entry_crcs(np.ascontiguousarray(entries), self.salt_crc, first_ordinal)
        return np.frombuffer(crcs, dtype=np.uint32)
