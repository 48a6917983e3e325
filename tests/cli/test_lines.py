import os
import threading
from collections.abc import Iterator

import pytest

from timestone_cli.errors import CommandError
from timestone_cli.lines import LineReader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for fd in (read_end, write_end):
        try:
            os.close(fd)
        except OSError:
            pass


def all_lines(reader: LineReader) -> list[bytes]:
    lines = []
    while not reader.ended:
        lines += reader.read()
    return lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"one\n\n\ntwo\n", [b"one", b"", b"", b"two"]),
        (b"dos\r\n", [b"dos\r"]),
        (b"\xff\x00\n\xfe", [b"\xff\x00", b"\xfe"]),
    ],
)
def test_every_line_is_given_without_its_newline(
    pipe: tuple[int, int], data: bytes, lines: list[bytes]
) -> None:
    os.write(pipe[1], data)
    os.close(pipe[1])
    assert all_lines(LineReader(pipe[0], 100)) == lines


def test_lines_are_the_same_when_they_arrive_byte_by_byte(pipe: tuple[int, int]) -> None:
    reader, lines = LineReader(pipe[0], 100), []
    for byte in b"one\n\ntwo\nend":
        os.write(pipe[1], bytes([byte]))
        lines += reader.read()
    os.close(pipe[1])
    assert lines + all_lines(reader) == [b"one", b"", b"two", b"end"]


def test_a_line_is_given_as_soon_as_it_is_complete(pipe: tuple[int, int]) -> None:
    reader = LineReader(pipe[0], 100)
    os.write(pipe[1], b"one\ntw")
    assert reader.read() == [b"one"]
    assert not reader.ended


def test_silence_returns_nothing_so_that_the_caller_can_look_at_other_things(pipe: tuple[int, int]) -> None:
    assert LineReader(pipe[0], 100).read() == []


def test_fast_input_comes_in_large_lists(pipe: tuple[int, int]) -> None:
    lines = [b"%07d" % number for number in range(200_000)]

    def write() -> None:
        # Not `os.write`, which a signal in the middle ends early.
        with os.fdopen(pipe[1], "wb") as end:
            end.write(b"\n".join(lines))

    writer = threading.Thread(target=write)
    writer.start()
    reader, lists = LineReader(pipe[0], 100), []
    while not reader.ended:
        lists.append(reader.read())
    writer.join()
    assert [line for some in lists for line in some] == lines


@pytest.mark.parametrize("ending", [b"", b"\n", b"\nshort\n"])
def test_a_line_over_the_limit_is_named_after_those_before_it_were_given(
    pipe: tuple[int, int], ending: bytes
) -> None:
    os.write(pipe[1], b"one\ntwo\n" + b"x" * 11 + ending)
    os.close(pipe[1])
    reader, lines = LineReader(pipe[0], 10), []

    def read_all() -> None:
        while not reader.ended:
            lines.extend(reader.read())

    with pytest.raises(CommandError, match="line 3 is over the log's limit of 10 bytes"):
        read_all()
    assert lines == [b"one", b"two"]
