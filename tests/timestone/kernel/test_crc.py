import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.kernel.crc import ROW_BYTES, crc32c, row_contributions

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


@given(st.binary(max_size=40), st.lists(st.binary(min_size=ROW_BYTES, max_size=ROW_BYTES), max_size=20))
def test_rows_at_once_agree_with_one_at_a_time(prefix: bytes, rows: list[bytes]) -> None:
    start = crc32c(prefix)
    zero = crc32c(bytes(ROW_BYTES), start)
    matrix = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), ROW_BYTES)
    assert (row_contributions(matrix) ^ np.uint32(zero)).tolist() == [crc32c(row, start) for row in rows]


@pytest.mark.parametrize("count", [1023, 1024, 1025, 5000])
def test_rows_of_several_chunks_agree_with_one_at_a_time(count: int) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (count, ROW_BYTES), dtype=np.uint8)
    zero = crc32c(bytes(ROW_BYTES))
    assert (row_contributions(rows) ^ np.uint32(zero)).tolist() == [crc32c(row.tobytes()) for row in rows]
