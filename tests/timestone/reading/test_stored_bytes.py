"""Stored bytes are joined only as far as one buffer of them is needed."""

from hypothesis import given
from hypothesis import strategies as st

from timestone.reading.stored_bytes import StoredBytes


def stored(*pieces: bytes) -> StoredBytes:
    return StoredBytes(pieces, sum(map(len, pieces)))


def covered(run: StoredBytes, start: int, end: int) -> tuple[bytes, int]:
    data, begin = run.covering(start, end)
    return (data if isinstance(data, bytes) else data()), begin


def test_a_single_piece_is_not_copied() -> None:
    piece = b"x" * 1000
    assert stored(piece).joined() is piece
    assert stored(piece).covering(10, 20) == (piece, 0)
    assert stored(piece).covering(10, 20)[0] is piece


def test_no_pieces_are_no_bytes() -> None:
    assert stored().joined() == b""
    assert covered(stored(), 0, 0) == (b"", 0)


def test_only_the_pieces_concerned_are_copied() -> None:
    run = stored(b"ab", b"cde", b"", b"fg")
    assert covered(run, 2, 5) == (b"cde", 2)
    assert covered(run, 3, 4) == (b"cde", 2)
    assert covered(run, 1, 3) == (b"abcde", 0)
    assert covered(run, 5, 7) == (b"fg", 5)


@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(0, 40), st.integers(0, 40))
def test_covering_pieces_have_the_bytes_of_the_range(pieces: list[bytes], start: int, length: int) -> None:
    run, whole = stored(*pieces), b"".join(pieces)
    start = min(start, len(whole))
    end = min(start + length, len(whole))
    data, begin = covered(run, start, end)
    assert begin <= start or start == end
    assert data[start - begin : end - begin] == whole[start:end]
    assert run.joined() == whole
    assert run.size_bytes == len(whole)
