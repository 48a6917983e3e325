"""Identity of a log. Kept in its own folder, so that the folder needs no catalogue to be read: in the header page of
the topic dictionary, and less its name in the header page of each index.

     0  8  magic "TSTTOPIC"       24  8  created, microseconds since 1970
     8  4  format version         32  2  length of the log's name
    12  4  partition              34  .  the log's name, then zeros
    16  8  log id                508  4  crc32c of bytes 0 to 507"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from timestone.disk.files import Files
from timestone.errors import CorruptLog, UnsupportedFormat
from timestone.format import names
from timestone.index import DamagedIndex, IndexHeader
from timestone.kernel.entries import HEADER_BYTES as INDEX_HEADER_BYTES
from timestone.kernel.loops import crc32c

FORMAT_VERSION = 1
HEADER_BYTES = 512
_MAGIC = b"TSTTOPIC"
_HEADER = struct.Struct("<8sIIQqH")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Identity of a log, which also differs from a later log of the same name."""

    log_id: int
    name: str
    partition: int
    created_us: int

    def encode(self) -> bytes:
        """Return the header page."""
        name = self.name.encode()
        fixed = (
            _HEADER.pack(_MAGIC, FORMAT_VERSION, self.partition, self.log_id, self.created_us, len(name))
            + name
        )
        fixed = fixed.ljust(HEADER_BYTES - 4, b"\0")
        return fixed + _CRC.pack(crc32c(fixed))

    @classmethod
    def decode(cls, page: bytes, path: Path) -> Self:
        """Decode a header page. Raises CorruptLog, or UnsupportedFormat for a valid page of a newer version."""
        if len(page) < HEADER_BYTES or _CRC.unpack_from(page, HEADER_BYTES - 4)[0] != crc32c(
            page[: HEADER_BYTES - 4]
        ):
            raise CorruptLog(path, "the header page does not match its checksum")
        magic, version, partition, log_id, created_us, name_length = _HEADER.unpack_from(page)
        if magic != _MAGIC:
            raise CorruptLog(path, f"not a topic dictionary: magic is {magic!r}")
        if version != FORMAT_VERSION:
            raise UnsupportedFormat(path, version, FORMAT_VERSION)
        name = page[_HEADER.size : _HEADER.size + name_length].decode()
        return cls(log_id, name, partition, created_us)


def identity_from_indexes(
    files: Files, folder: Path, bases: Iterable[int], name: str, partition: int
) -> LogIdentity | None:
    """Return the identity by the header of the first valid index, for a log whose topic dictionary is damaged; None
    if there is none. Raises UnsupportedFormat."""
    for base in bases:
        path = names.index_path(folder, base)
        try:
            header = IndexHeader.decode(files.read_part(path, INDEX_HEADER_BYTES), path)
        except (OSError, DamagedIndex):
            continue
        return LogIdentity(header.log_id, name, partition, header.created_us)
    return None
