"""The compression dictionaries of a log: files in its folder, numbered from 1, written once and never removed.

A segment that was compressed with one cannot be read without it, so the
file is durable before the first segment that uses it is made, holds the dictionary twice, each copy with a checksum
of its own, and stays. A new one is a new number.

    half a file, a multiple of 4096 bytes; the other half is the same
     0  8  magic "TSTDICTI"          24  4  bytes of the dictionary
     8  4  format version            28  4  crc32c of bytes 0 to 27 and the dictionary
    12  4  number                    32  .  the dictionary, as zstd knows it; then zeros
    16  8  log id"""

import struct
from pathlib import Path

from timestone.disk.files import Files
from timestone.errors import UnsupportedFormat
from timestone.format import names
from timestone.kernel.loops import crc32c

FORMAT_VERSION = 1
DICTIONARY_BYTES_MAX = 1 << 20
"""Maximum accepted size of a dictionary."""
_MAGIC = b"TSTDICTI"
_HEADER = struct.Struct("<8sIIQI")
_CRC = struct.Struct("<I")
_HEAD_BYTES = _HEADER.size + _CRC.size
_ALIGNED_BYTES = 4096
assert _HEADER.size == 28


def encode_dictionary(log_id: int, number: int, content: bytes) -> bytes:
    """Return the whole file."""
    fixed = _HEADER.pack(_MAGIC, FORMAT_VERSION, number, log_id, len(content))
    half = fixed + _CRC.pack(crc32c(content, crc32c(fixed))) + content
    return half.ljust(-(-len(half) // _ALIGNED_BYTES) * _ALIGNED_BYTES, b"\0") * 2


def decode_half(data: bytes, path: Path, log_id: int, number: int) -> bytes | None:
    """Decode the dictionary in one half of a file; None if it is damaged. Raises UnsupportedFormat."""
    if len(data) < _HEAD_BYTES:
        return None
    magic, version, found_number, found_id, length = _HEADER.unpack_from(data)
    content = data[_HEAD_BYTES : _HEAD_BYTES + length]
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32c(content, crc32c(data[: _HEADER.size])):
        return None
    if magic != _MAGIC or (found_id, found_number) != (log_id, number):
        return None
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(path, version, FORMAT_VERSION)
    return content


def write_dictionary(files: Files, folder: Path, log_id: int, number: int, content: bytes) -> None:
    """Write a dictionary under its number, durably. Raises OSError without leaving a file."""
    path = names.dictionary_path(folder, number)
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    files.discard(temporary)
    files.write_file(temporary, encode_dictionary(log_id, number, content))
    files.rename(temporary, path)
    files.sync_directory(folder)


def read_dictionary(files: Files, folder: Path, log_id: int, number: int) -> tuple[bytes | None, str]:
    """Return a dictionary and what is wrong with its file: empty if nothing; with None if both copies are damaged or
    the file is missing. Raises UnsupportedFormat, OSError."""
    path = names.dictionary_path(folder, number)
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return None, f"{path.name} is missing"
    middle = min(len(data) // 2, DICTIONARY_BYTES_MAX + _ALIGNED_BYTES)
    halves = [decode_half(half, path, log_id, number) for half in (data[:middle], data[middle : 2 * middle])]
    content = halves[0] if halves[0] is not None else halves[1]
    if content is None:
        return None, f"both copies in {path.name} are damaged"
    return content, "" if None not in halves else f"one of the two copies in {path.name} is damaged"


def dictionary_numbers(files: Files, folder: Path) -> list[int]:
    """Return the numbers of the existing dictionaries, sorted. Raises OSError."""
    found = (names.parse_dictionary(name) for name in files.names(folder))
    return sorted(number for number in found if number is not None)
