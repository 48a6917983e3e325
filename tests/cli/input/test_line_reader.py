import os
import threading
from collections.abc import Iterator

import pytest

from timestone_cli.errors import CommandError
from timestone_cli.input.line_reader import LineReader


class Pipe:
    """Both ends; the one to write into can be closed early. By its number it could not be closed twice: that may be
    another owner's by then."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.write_end = os.fdopen(write_end, "wb")

    def write(self, data: bytes) -> None:
        """All of it, also when a signal comes in between."""
        self.write_end.write(data)
        self.write_end.flush()

    def end(self) -> None:
        self.write_end.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.end()
    os.close(pipe.read_end)


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
def test_every_line_is_given_without_its_newline(pipe: Pipe, data: bytes, lines: list[bytes]) -> None:
    pipe.write(data)
    pipe.end()
    assert all_lines(LineReader(pipe.read_end, 100)) == lines


def test_lines_are_the_same_when_they_arrive_byte_by_byte(pipe: Pipe) -> None:
    reader, lines = LineReader(pipe.read_end, 100), []
    for byte in b"one\n\ntwo\nend":
        pipe.write(bytes([byte]))
        lines += reader.read()
    pipe.end()
    assert lines + all_lines(reader) == [b"one", b"", b"two", b"end"]


def test_a_line_is_given_as_soon_as_it_is_complete(pipe: Pipe) -> None:
    reader = LineReader(pipe.read_end, 100)
    pipe.write(b"one\ntw")
    assert reader.read() == [b"one"]
    assert not reader.ended


def test_silence_returns_nothing_so_that_the_caller_can_look_at_other_things(pipe: Pipe) -> None:
    assert LineReader(pipe.read_end, 100).read() == []


def test_fast_input_comes_in_large_lists(pipe: Pipe) -> None:
    lines = [b"%07d" % number for number in range(200_000)]

    def write() -> None:
        pipe.write(b"\n".join(lines))
        pipe.end()

    writer = threading.Thread(target=write)
    writer.start()
    reader, lists = LineReader(pipe.read_end, 100), []
    while not reader.ended:
        lists.append(reader.read())
    writer.join()
    assert [line for some in lists for line in some] == lines


@pytest.mark.parametrize("ending", [b"", b"\n", b"\nshort\n"])
def test_a_line_over_the_limit_is_named_after_those_before_it_were_given(pipe: Pipe, ending: bytes) -> None:
    pipe.write(b"one\ntwo\n" + b"x" * 11 + ending)
    pipe.end()
    reader, lines = LineReader(pipe.read_end, 10), []

    def read_all() -> None:
        while not reader.ended:
            lines.extend(reader.read())

    with pytest.raises(CommandError, match="line 3 is over the log's limit of 10 bytes"):
        read_all()
    assert lines == [b"one", b"two"]
