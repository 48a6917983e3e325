import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.kernel.crc import crc32c

# RFC 3720, appendix B.4.
KNOWN = [
    (b"", 0),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
]


@pytest.mark.parametrize(("data", "crc"), KNOWN, ids=lambda value: repr(value)[:20])
def test_crc_is_crc32c(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_crc_can_be_continued(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)
