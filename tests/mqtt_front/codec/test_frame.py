"""Deliveries and acknowledgements framed in bulk have the same bytes as one packet at a time.

Tests of `frame_records` run on it and, where it was built, on its compiled twin.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.fields import text
from mqtt_front.codec.frame import (
    Form,
    Framed,
    Records,
    frame_acknowledgements,
    frame_publishes,
    publish_size,
    with_duplicate_flag,
    with_reason,
)
from mqtt_front.codec.packets import Puback, Publish, Pubrec
from mqtt_front.codec.properties import write_properties
from tests.support.mqtt_kernels import each_kernel
from tests.support.mqtt_packets import publishes


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_publishes_are_framed_the_same_in_bulk_and_one_by_one(level: int, data: st.DataObject) -> None:
    packets = data.draw(st.lists(publishes(level), max_size=6))
    framed = frame_publishes(
        [encode_packet(packet, level)[0] for packet in packets],
        [text(packet.topic) for packet in packets],
        [packet.packet_id for packet in packets],
        [write_properties(packet.properties) for packet in packets] if level == 5 else None,
        [packet.payload for packet in packets],
    )
    assert framed == b"".join(encode_packet(packet, level) for packet in packets)


@pytest.mark.parametrize(
    "size", [0, 120, 121, 122, 123, 124, 125, 126, 16_376, 16_377, 16_378, 16_379, 16_380]
)
@pytest.mark.parametrize("qos", [0, 1])
def test_size_of_a_delivery_is_known_without_framing_it(size: int, qos: int) -> None:
    packet = Publish("a/b", b"x" * size, qos, packet_id=qos)
    for level, block in ((4, b""), (5, b"\0")):
        assert publish_size(text("a/b"), block, size, qos > 0) == len(encode_packet(packet, level))


@given(st.lists(st.integers(1, 65_535), max_size=10), st.sampled_from([0, 0x97]))
def test_acknowledgements_are_framed_the_same_in_bulk_and_one_by_one(ids: list[int], reason: int) -> None:
    raw = [packet_id.to_bytes(2, "big") for packet_id in ids]
    for first, kind in ((0x40, Puback), (0x50, Pubrec)):
        expected = b"".join(encode_packet(kind(packet_id, reason), 5) for packet_id in ids)
        assert frame_acknowledgements(first, raw, reason) == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 65_535)), max_size=10))
def test_each_acknowledgement_gets_its_own_reason(answers: list[tuple[bool, int]]) -> None:
    packets = [(Pubrec if received else Puback)(packet_id) for received, packet_id in answers]
    plain = b"".join(encode_packet(packet, 5) for packet in packets)
    expected = b"".join(encode_packet(type(packet)(packet.packet_id, 0x97), 5) for packet in packets)
    assert with_reason(plain, 0x97) == expected


Frame = Callable[..., Framed]
LIMIT = 1 << 28


@pytest.fixture(params=each_kernel("frame_records"), scope="session")
def frame(request: pytest.FixtureRequest) -> Frame:
    found: Frame = request.param
    return found


def records(*rows: tuple[int, int, bytes], first_offset: int = 100) -> Records:
    """Records as (topic id, flags, payload), with other bytes between them, in columns with gaps as a batch has
    them."""
    data, starts = b"", []
    for _, _, payload in rows:
        starts.append(len(data) + 1)
        data += b"?" + payload
    entries = np.zeros(
        len(rows), dtype=[("length", "<u4"), ("topic", "<u4"), ("flags", "<u2"), ("other", "<u8")]
    )
    entries["length"] = [len(payload) for _, _, payload in rows]
    entries["topic"] = [topic for topic, _, _ in rows]
    entries["flags"] = [flags for _, flags, _ in rows]
    offsets = np.arange(first_offset, first_offset + len(rows), dtype=np.int64)
    return Records(
        data, offsets, entries["topic"], entries["flags"], np.array(starts, dtype=np.int64), entries["length"]
    )


def form(topic: str, qos: int = 0, block: bytes = b"", retain: bool = False, first_offset: int = 0) -> Form:
    return Form(text(topic), block, qos, retain, first_offset)


QOS_1, QOS_2, RETAIN = 2, 4, 1


@pytest.mark.parametrize("level", [4, 5])
def test_records_are_framed_the_same_in_bulk_and_one_by_one(frame: Frame, level: int) -> None:
    rows = records(
        (1, 0, b"a"),
        (2, QOS_1, b"b" * 200),
        (1, QOS_2 | RETAIN, b""),
        (2, QOS_2, b"d"),
        (2, QOS_1 | RETAIN, b"e"),
    )
    block = b"\0" if level == 5 else b""
    forms = {1: form("t/1", 2, block, retain=True), 2: form("t/2", 1, block)}
    framed = frame(rows, forms, [7, 8, 9, 10], 0, LIMIT)
    expected = [
        Publish("t/1", b"a"),
        Publish("t/2", b"b" * 200, 1, packet_id=7),
        Publish("t/1", b"", 2, retain=True, packet_id=8),
        Publish("t/2", b"d", 1, packet_id=9),
        Publish("t/2", b"e", 1, packet_id=10),
    ]
    assert framed == Framed(
        b"".join(encode_packet(packet, level) for packet in expected),
        5,
        5,
        [101, 102, 103, 104],
        bytes((1, 2, 1, 1)),
    )


def test_records_without_a_granted_qos_are_skipped(frame: Frame) -> None:
    framed = frame(records((1, 0, b"a"), (2, 0, b"b"), (1, 0, b"c")), {1: None, 2: form("t")}, [], 0, LIMIT)
    assert (framed.data, framed.end, framed.packet_count) == (encode_packet(Publish("t", b"b"), 4), 3, 1)


def test_missed_messages_of_qos_0_are_skipped(frame: Frame) -> None:
    rows = records((1, 0, b"a"), (1, QOS_1, b"b"), (1, 0, b"c"))
    framed = frame(rows, {1: form("t", 1)}, [5], 102, LIMIT)
    sent = [Publish("t", b"b", 1, packet_id=5), Publish("t", b"c")]
    assert framed.data == b"".join(encode_packet(packet, 4) for packet in sent)


STOPS: dict[str, tuple[dict[int, Form | None], list[int], int]] = {
    "a topic without a form": ({1: form("t", 1)}, [1, 2, 3], LIMIT),
    "an offset below the form's first": (
        {1: form("t", 1), 2: form("u", 1, first_offset=103)},
        [1, 2, 3],
        LIMIT,
    ),
    "a packet that is too large": ({1: form("t", 1), 2: form("u" * 20, 1)}, [1, 2, 3], 20),
    "no packet id left": ({1: form("t", 1), 2: form("u", 1)}, [1], LIMIT),
}


@pytest.mark.parametrize(("forms", "ids", "limit"), STOPS.values(), ids=STOPS.keys())
def test_framing_stops_at_a_record_that_needs_the_general_path(
    frame: Frame, forms: dict[int, Form | None], ids: list[int], limit: int
) -> None:
    rows = records((1, 0, b"a"), (1, QOS_1, b"b"), (2, QOS_1, b"c"), (1, 0, b"d"))
    framed = frame(rows, forms, ids, 0, limit)
    assert (framed.end, framed.packet_count, framed.offsets) == (2, 2, [101])
    rest = frame(records((1, 0, b"d"), first_offset=103), forms, ids, 0, limit)
    assert rest.data == encode_packet(Publish("t", b"d"), 4)


@pytest.mark.parametrize(
    "size", [0, 118, 119, 120, 121, 122, 16_372, 16_373, 16_376, 16_377, 2_097_140, 2_097_150]
)
@pytest.mark.parametrize("qos", [0, 1])
def test_packets_are_framed_at_every_size_around_the_varint_borders(
    frame: Frame, size: int, qos: int
) -> None:
    packet = Publish("a/b", b"x" * size, qos, packet_id=qos)
    encoded = encode_packet(packet, 4)
    rows, forms = records((9, qos << 1, packet.payload)), {9: form("a/b", 1)}
    assert frame(rows, forms, [1], 0, len(encoded)).data == encoded
    assert frame(rows, forms, [1], 0, len(encoded) - 1).end == 0


def test_framing_of_no_records_returns_no_bytes(frame: Frame) -> None:
    assert frame(records(), {}, [], 0, LIMIT) == Framed(b"", 0, 0, [], b"")


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (4, 1), (2**62, 1), (0, 5), (3, 2**28 - 20)])
def test_records_outside_of_their_data_are_refused(frame: Frame, start: int, length: int) -> None:
    starts, lengths = np.array([start], np.int64), np.array([length], np.uint32)
    rows = records((1, 0, b"abc"))._replace(starts=starts, lengths=lengths)
    with pytest.raises(ValueError):
        frame(rows, {1: form("t")}, [], 0, LIMIT)


def test_inconsistent_columns_are_refused(frame: Frame) -> None:
    rows = records((1, 0, b"a"), (1, 0, b"b"))
    with pytest.raises(ValueError):
        frame(rows._replace(topic_ids=rows.topic_ids[:1]), {1: form("t")}, [], 0, LIMIT)


@pytest.mark.parametrize("qos", [-1, 3])
def test_template_with_an_invalid_qos_is_refused(frame: Frame, qos: int) -> None:
    with pytest.raises(ValueError):
        frame(records((1, 6, b"a")), {1: form("t", qos)}, [1], 0, LIMIT)


@pytest.mark.parametrize("packet_id", [-1, 65_536])
def test_invalid_packet_ids_are_refused(frame: Frame, packet_id: int) -> None:
    with pytest.raises(OverflowError):
        frame(records((1, QOS_1, b"a")), {1: form("t", 1)}, [packet_id], 0, LIMIT)


@given(
    sent=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from((0, 1, 100, 200, 20_000)))),
    level=st.sampled_from((4, 5)),
)
def test_packets_at_qos_1_get_dup_and_nothing_else_changes(
    sent: list[tuple[int, bool, int]], level: int
) -> None:
    publishes = [
        Publish("t", b"x" * size, qos, retain, packet_id=7 if qos else 0) for qos, retain, size in sent
    ]
    wanted = [replace(one, duplicate=one.qos == 1) for one in publishes]
    data = b"".join(encode_packet(one, level) for one in publishes)
    assert with_duplicate_flag(data) == b"".join(encode_packet(one, level) for one in wanted)
