"""Salt of the `entry_crc`, which ties an index entry to its log, segment and ordinal. `entries` has the layout,
`loops` the computation; only this module knows the content of the salt."""

import struct

import numpy as np
import numpy.typing as npt

from timestone.kernel import loops
from timestone.kernel.entries import Entries
from timestone.kernel.loops import crc32c

_SALT = struct.Struct("<QQ")


class EntrySeal:
    """Computes and checks the `entry_crc` of the entries of one segment."""

    __slots__ = ("salt_crc",)

    def __init__(self, log_id: int, base_offset: int) -> None:
        self.salt_crc = crc32c(_SALT.pack(log_id, base_offset))
        """CRC-32C of log id and base offset, from which the checksum of every entry continues."""

    def placed(self, entries: bytes, *, ordinal: int, position: int) -> bytes:
        """Return entries of records that lie back to back, for another place: with new positions and checksums."""
        return loops.placed_entries(entries, position=position, ordinal=ordinal, salt_crc=self.salt_crc)

    def valid(self, entries: Entries, first_ordinal: int) -> npt.NDArray[np.bool_]:
        """Return which entries match their checksum for this log, segment and ordinal."""
        good = self._crcs(entries, first_ordinal) == entries["entry_crc"]
        return np.asarray(good & (entries["timestamp_us"] > 0), dtype=np.bool_)

    def valid_count(self, entries: Entries, first_ordinal: int) -> int:
        """Return the number of valid entries at the front; cheaper than `valid`."""
        return loops.valid_count(np.ascontiguousarray(entries), self.salt_crc, first_ordinal)

    def _crcs(self, entries: Entries, first_ordinal: int) -> npt.NDArray[np.uint32]:
        crcs = loops.entry_crcs(np.ascontiguousarray(entries), self.salt_crc, first_ordinal)
        return np.frombuffer(crcs, dtype=np.uint32)
