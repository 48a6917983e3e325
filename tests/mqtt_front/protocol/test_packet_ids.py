"""Packet ids are never in use, never 0, and wrap around."""

from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.protocol.packet_ids import PACKET_ID_MAX, PacketIds


def test_packet_ids_wrap_and_skip_those_in_use() -> None:
    ids = PacketIds(PACKET_ID_MAX - 2)
    assert ids.take(4, {PACKET_ID_MAX, 1}) == [PACKET_ID_MAX - 1, 2, 3, 4]
    assert ids.last == 4


def test_packet_ids_wrap_with_the_oldest_unacknowledged() -> None:
    ids, in_use = PacketIds(), set[int]()
    (oldest,) = ids.take(1, in_use)
    in_use.add(oldest)
    for _ in range(700):
        taken = ids.take(100, in_use)
        assert len(set(taken)) == 100 and oldest not in taken and 0 not in taken


def test_all_ids_can_be_in_use_at_once() -> None:
    ids = PacketIds(12345)
    assert sorted(ids.take(PACKET_ID_MAX, set())) == list(range(1, PACKET_ID_MAX + 1))


@given(st.integers(0, PACKET_ID_MAX), st.sets(st.integers(1, PACKET_ID_MAX), max_size=50), st.integers(0, 50))
def test_taken_ids_are_distinct_and_free(last: int, in_use: set[int], count: int) -> None:
    taken = PacketIds(last).take(count, in_use)
    assert len(set(taken)) == count
    assert not set(taken) & in_use
    assert all(1 <= one <= PACKET_ID_MAX for one in taken)


def test_peeked_packet_ids_are_not_taken() -> None:
    ids = PacketIds(3)
    assert ids.next(3, {5}) == [4, 6, 7]
    ids.last = 6
    assert ids.take(2, {5}) == [7, 8]
    assert ids.take(0, ()) == []
