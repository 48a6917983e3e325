"""Runs of publishes can be split, joined and cut with consistent columns."""

from array import array

import pytest

from mqtt_front.protocol.events import Publishes, PublishRow, has_qos_2

ROWS = [
    PublishRow(0x30, b"a", b"", b"1", b""),
    PublishRow(0x32, b"b", b"head", b"2", b"\x40\2\0\1"),
    PublishRow(0x30, b"a", b"", b"", b""),
    PublishRow(0x34, b"c", b"", b"four", b"\x50\2\0\2"),
]


def test_rows_are_converted_to_columns() -> None:
    run = Publishes.of(ROWS, 99)
    assert run == Publishes(
        b"\x30\x32\x30\x34",
        [b"a", b"b", b"c"],
        array("H", [0, 1, 0, 2]).tobytes(),
        b"1head2four",
        array("I", [1, 5, 0, 4]).tobytes(),
        [0, 4, 0, 0],
        b"\x40\2\0\1\x50\2\0\2",
        99,
    )
    assert run.numbers().tolist() == [0, 1, 0, 2]


def test_columns_are_converted_back_to_the_same_rows() -> None:
    assert list(Publishes.of(ROWS).rows()) == ROWS
    assert list(Publishes.of([]).rows()) == []


def test_run_knows_from_first_bytes_whether_it_has_qos_2() -> None:
    assert not has_qos_2(bytes((0x30, 0x32, 0x3B)))
    assert has_qos_2(bytes((0x30, 0x34)))


def test_a_run_without_headers_has_no_column_for_them() -> None:
    assert Publishes.of([ROWS[0], ROWS[3]]).header_lengths == 0


@pytest.mark.parametrize("count", range(5))
def test_head_of_a_run_has_only_its_own_topics_and_answers(count: int) -> None:
    head = Publishes.of(ROWS, 99).head(count)
    expected = Publishes.of(ROWS[:count], 99)
    if count == 1:  # the column stays, though none of the rest has a header block
        assert head.header_lengths == [0]
        head = head._replace(header_lengths=0)
    if count == 0:
        head = head._replace(header_lengths=0)
    assert head == expected
