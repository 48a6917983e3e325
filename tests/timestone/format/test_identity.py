"""A folder contains the identity of its log."""

from pathlib import Path

import pytest

from timestone.disk.files import Files
from timestone.errors import CorruptLog, UnsupportedFormat
from timestone.format.identity import HEADER_BYTES, LogIdentity, identity_from_indexes
from timestone.index import IndexHeader
from timestone.writing.segment_writer import SegmentWriter

IDENTITY = LogIdentity(0x1122334455667788, "telemetry", 3, 1_700_000_000_000_000)


def test_identity_is_decoded_from_its_page() -> None:
    page = IDENTITY.encode()
    assert len(page) == HEADER_BYTES
    assert LogIdentity.decode(page + b"names", Path("topics")) == IDENTITY


@pytest.mark.parametrize("at", [0, 8, 16, 34, HEADER_BYTES - 1])
def test_page_with_a_flipped_bit_is_corrupt(at: int) -> None:
    page = bytearray(IDENTITY.encode())
    page[at] ^= 1
    with pytest.raises(CorruptLog, match=r"topics: .*checksum"):
        LogIdentity.decode(bytes(page), Path("topics"))


def test_identity_is_taken_from_the_first_valid_index(quick_directory: Path) -> None:
    for base in (0, 10):
        SegmentWriter(Files(), quick_directory, IndexHeader(77, base, 5 + base, 0, bytes(16))).close()

    def known() -> LogIdentity | None:
        return identity_from_indexes(Files(), quick_directory, [0, 10, 20], "telemetry", 3)

    assert known() == LogIdentity(77, "telemetry", 3, 5)
    first, second = sorted(quick_directory.glob("*.index"))
    first.write_bytes(b"damaged")
    assert known() == LogIdentity(77, "telemetry", 3, 15)
    second.unlink()
    assert known() is None


def test_index_of_a_newer_version_is_not_reported_as_damage(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone.index.FORMAT_VERSION", 99)
    SegmentWriter(Files(), quick_directory, IndexHeader(77, 0, 5, 0, bytes(16))).close()
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat):
        identity_from_indexes(Files(), quick_directory, [0], "telemetry", 3)
