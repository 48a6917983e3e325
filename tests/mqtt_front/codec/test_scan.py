"""The scanner takes exactly the PUBLISH packets that `decode_packet` accepts, with the same content.

Every test runs on the scanner in Python and, where it was built, on its compiled twin.
"""

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec.decode import decode_packet, packet_end
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.fields import Fields, decode_text, varint
from mqtt_front.codec.packets import Puback, Publish
from mqtt_front.codec.properties import Carrier, read_block
from mqtt_front.codec.scan import RUN_PACKETS, RUN_TOPICS, PublishRun, scan_acknowledgements, scan_pings
from mqtt_front.errors import MalformedPacket, MqttError
from tests.support.mqtt_kernels import each_kernel
from tests.support.mqtt_packets import any_packet, publishes

LIMIT = 1 << 20
Scan = Callable[..., PublishRun]


@pytest.fixture(params=each_kernel("scan_publishes"), scope="session")
def scan(request: pytest.FixtureRequest) -> Scan:
    """A whole buffer scanned by one of the twins."""

    def scanned(data: bytes, level: int, limit: int = LIMIT) -> PublishRun:
        run: PublishRun = request.param(data, 0, len(data), level, limit)
        return run

    return scanned


def as_packets(run: PublishRun, level: int) -> list[Publish]:
    """What the columns of a run say, as packets."""
    answers = [run.acknowledgements[at : at + 4] for at in range(0, len(run.acknowledgements), 4)]
    numbers, lengths = array("H", run.topic_numbers), array("I", run.lengths)
    found: list[Publish] = []
    at = 0
    for first, topic_number, length in zip(run.first_bytes, numbers, lengths, strict=True):
        qos, packet_id = first >> 1 & 3, 0
        if qos:
            answer = answers.pop(0)
            assert answer[:2] == (b"\x40\x02" if qos == 1 else b"\x50\x02")
            packet_id = int.from_bytes(answer[2:], "big")
        properties = read_block(Fields(run.properties.get(len(found), b"")), Carrier.PUBLISH)
        topic, payload = decode_text(run.topics[topic_number]), run.data[at : at + length]
        found.append(Publish(topic, payload, qos, bool(first & 1), bool(first & 8), packet_id, properties))
        at += length
    assert answers == [] and at == len(run.data)
    assert list(dict.fromkeys(numbers)) == list(range(len(run.topics))), "in the order of first use"
    assert set(run.properties) <= set(range(len(found)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_scan_takes_a_run_of_publishes(scan: Scan, level: int, data: st.DataObject) -> None:
    sent = data.draw(st.lists(publishes(level), max_size=6))
    encoded = b"".join(encode_packet(packet, level) for packet in sent)
    run = scan(encoded, level)
    assert as_packets(run, level) == sent
    assert run.position == len(encoded)


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_scan_stops_before_an_incomplete_packet(scan: Scan, level: int, data: st.DataObject) -> None:
    sent = data.draw(st.lists(publishes(level), min_size=1, max_size=3))
    pieces = [encode_packet(packet, level) for packet in sent]
    encoded = b"".join(pieces)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    run = scan(encoded[:cut], level)
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    complete = max(number for number, end in enumerate(ends) if end <= cut)
    assert as_packets(run, level) == sent[:complete]
    assert run.position == ends[complete]


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_scan_agrees_with_the_decoder_on_any_first_packet(
    scan: Scan, level: int, data: st.DataObject
) -> None:
    encoded = bytearray(encode_packet(data.draw(any_packet(level)), level))
    for _ in range(data.draw(st.integers(0, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    agrees(scan, bytes(encoded) + data.draw(st.binary(max_size=4)), level)


@given(st.sampled_from(range(0x30, 0x40)), st.binary(max_size=40), st.sampled_from([4, 5]))
def test_scan_agrees_with_the_decoder_on_any_bytes(scan: Scan, first: int, body: bytes, level: int) -> None:
    agrees(scan, bytes((first,)) + body, level)
    agrees(scan, bytes((first,)) + varint(len(body)) + body, level)


def agrees(scan: Scan, encoded: bytes, level: int) -> None:
    """The first packet is taken by both or by neither. Content is the decoder's business alone: text and properties."""
    run = scan(encoded, level)
    try:
        place = packet_end(encoded, 0, len(encoded))
        decoded = None
        if place is not None and place[1] <= len(encoded):
            decoded = decode_packet(encoded[0], encoded[place[0] : place[1]], level)
    except MqttError:
        decoded = None
    if isinstance(decoded, Publish):
        assert as_packets(run, level)[0] == decoded
    elif run.first_bytes:
        # Well-formed to the scanner, so what the decoder objects to is text or properties.
        with pytest.raises(MqttError):
            judge_content(run, level)


def judge_content(run: PublishRun, level: int) -> None:
    """Raise what the decoder would for the content of the first packet."""
    alias = read_block(Fields(run.properties.get(0, b"")), Carrier.PUBLISH).topic_alias
    if not run.topics[0] and alias is None:
        raise MalformedPacket("PUBLISH without a topic")
    decode_text(run.topics[0])


def test_scan_takes_payloads_of_every_length_around_the_varint_borders(scan: Scan) -> None:
    for size in (0, 1, 122, 123, 124, 127, 128, 16_370, 16_378, 16_384, 300_000):
        sent = Publish("a/b", b"p" * size, 1, packet_id=7)
        run = scan(encode_packet(sent, 4) * 2, 4)
        assert as_packets(run, 4) == [sent, sent]


def test_scan_leaves_a_packet_over_the_limit_to_the_decoder(scan: Scan) -> None:
    encoded = encode_packet(Publish("a", b"x" * 100), 4)
    assert len(scan(encoded, 4, len(encoded)).first_bytes) == 1
    assert scan(encoded, 4, len(encoded) - 1).first_bytes == b""


def test_scan_stops_before_a_packet_of_another_type(scan: Scan) -> None:
    publish, puback = encode_packet(Publish("a", b"x"), 4), encode_packet(Puback(1), 4)
    run = scan(publish + puback + publish, 4)
    assert len(run.first_bytes) == 1
    assert run.position == len(publish)


def test_scan_limits_the_packets_of_a_run(scan: Scan) -> None:
    packet = encode_packet(Publish("a"), 4)
    run = scan(packet * (RUN_PACKETS + 5), 4)
    assert (len(run.first_bytes), run.position) == (RUN_PACKETS, RUN_PACKETS * len(packet))


def test_scan_limits_the_topics_of_a_run(scan: Scan) -> None:
    packets = [encode_packet(Publish(f"t/{number}"), 4) for number in range(RUN_TOPICS + 3)]
    again = encode_packet(Publish("t/0"), 4)
    run = scan(b"".join(packets[:RUN_TOPICS]) + again + packets[RUN_TOPICS], 4)
    assert len(run.topics) == RUN_TOPICS
    assert len(run.first_bytes) == RUN_TOPICS + 1
    assert array("H", run.topic_numbers)[-1] == 0


def test_scan_distinguishes_topics_that_differ_in_any_byte(scan: Scan) -> None:
    topics = ["a" * size + last for size in (0, 1, 7, 8, 9, 30) for last in ("", "b", "c")]
    sent = [Publish(topic, b"%d" % number) for number, topic in enumerate(topics * 2) if topic]
    assert as_packets(scan(b"".join(encode_packet(packet, 4) for packet in sent), 4), 4) == sent


@pytest.mark.parametrize(("position", "end"), [(-1, 3), (3, 2), (0, 6), (6, 6), (0, -1)])
def test_scan_refuses_positions_outside_of_the_buffer(position: int, end: int) -> None:
    for parameter in each_kernel("scan_publishes"):
        function: Any = parameter.values[0]
        with pytest.raises(ValueError):
            function(b"\x30\3\0\1a", position, end, 4, LIMIT)


def test_scan_of_a_part_of_the_buffer_ignores_the_rest() -> None:
    packet = encode_packet(Publish("a", b"xyz", 1, packet_id=3), 4)
    for parameter in each_kernel("scan_publishes"):
        function: Any = parameter.values[0]
        run = function(b"..." + packet * 3, 3, 3 + 2 * len(packet), 4, LIMIT)
        assert (run.position, run.data) == (3 + 2 * len(packet), b"xyzxyz")
        run = function(b"..." + packet * 3, 3, 2 + 2 * len(packet), 4, LIMIT)
        assert (run.position, run.data) == (3 + len(packet), b"xyz")


@given(st.lists(st.integers(1, 65_535), max_size=20), st.binary(max_size=9))
def test_scan_takes_a_run_of_acknowledgements(ids: list[int], tail: bytes) -> None:
    encoded = b"".join(encode_packet(Puback(packet_id), 4) for packet_id in ids)
    found, position = scan_acknowledgements(encoded + b"\xd0" + tail, 0, len(encoded))
    assert (found, position) == (ids, len(encoded))


@pytest.mark.parametrize(
    ("data", "ids", "position"),
    [
        ("4002 0001 4002 0002 40", [1, 2], 8),
        ("4002 0001 5002 0002", [1], 4),
        ("4002 0001 4003 0002 10", [1], 4),
        ("4002 0001 4002 0000 4002 0003", [1], 4),
        ("4002 00", [], 0),
        ("6202 0009 6202 0008", [9, 8], 8),
    ],
)
def test_scan_ends_a_run_where_acknowledgements_differ(data: str, ids: list[int], position: int) -> None:
    encoded = bytes.fromhex(data)
    assert scan_acknowledgements(encoded, 0, len(encoded)) == (ids, position)


def test_scan_counts_only_leading_pings() -> None:
    ping = b"\xc0\x00"
    assert scan_pings(ping * 3, 0, 6) == 3
    assert scan_pings(b"x" + ping * 3 + b"\xc0\x01", 1, 9) == 3
    assert scan_pings(ping * 2 + b"\xc0", 0, 5) == 2
    assert scan_pings(b"\x30" + ping, 0, 3) == 0
    assert scan_pings(b"\xc0", 0, 1) == 0
