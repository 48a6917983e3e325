"""One receiving connection: everything is found, wherever the stream is cut."""

import socket
import time
from collections.abc import Sequence

import pytest

from tests.bench.mqtt.sockets import connected, read_exactly
from tests.support.waiting import TIMEOUT_S
from timestone_bench.mqtt.load.client_protocols import ClientProtocol, Mqtt, Nats
from timestone_bench.mqtt.load.histogram import Periods
from timestone_bench.mqtt.load.packet_template import PacketTemplate
from timestone_bench.mqtt.load.subscriber import Subscriber

MQTT, NATS = Mqtt(), Nats()


def stream(template: PacketTemplate, numbers: Sequence[int], sent_ns: int = 0) -> bytes:
    data = template.buffer(len(numbers))
    rows = template.packets(data, len(numbers))
    rows["sender"], rows["number"], rows["sent"] = 0, numbers, sent_ns
    if template.id_at is not None:
        rows["id"] = [number + 1 for number in numbers]
    return bytes(data)


def subscriber(
    ours: socket.socket,
    protocol: ClientProtocol,
    template: PacketTemplate,
    expected: int,
    latencies: Periods | None = None,
) -> Subscriber:
    return Subscriber(ours, protocol, template, expected=expected, latencies=latencies, inbox_bytes=1000)


def feed(one: Subscriber, theirs: socket.socket, data: bytes, piece: int) -> None:
    for start in range(0, len(data), piece):
        sent = data[start : start + piece]
        theirs.sendall(sent)
        before, one_more = one.received_bytes, len(sent)
        deadline = time.monotonic() + TIMEOUT_S
        while one.received_bytes - before < one_more and not one.done and time.monotonic() < deadline:
            one.receive(time.monotonic_ns())


@pytest.mark.parametrize("piece", [1, 7, 133, 100_000])
def test_every_message_is_found_however_the_stream_is_cut(piece: int) -> None:
    template = MQTT.delivery("t", 100, 0)
    with connected() as (ours, theirs):
        one = subscriber(ours, MQTT, template, 30)
        feed(one, theirs, stream(template, range(30)), piece)
        assert one.done
        assert one.delivery_check.to_json(30) == {"received": 30, "lost": 0, "duplicates": 0, "reordered": 0}


@pytest.mark.slow
def test_each_message_at_qos_1_is_acknowledged_by_its_id() -> None:
    template = MQTT.delivery("t", 100, 1)
    with connected() as (ours, theirs):
        one = subscriber(ours, MQTT, template, 20)
        feed(one, theirs, stream(template, range(20)), 50)
        assert read_exactly(theirs, 80) == b"".join(b"\x40\x02" + n.to_bytes(2, "big") for n in range(1, 21))


def test_a_message_sent_again_is_a_duplicate_and_the_one_missing_is_waited_for() -> None:
    template = MQTT.delivery("t", 100, 1)
    again = bytearray(stream(template, [1]))
    again[0] |= 0x08  # DUP
    with connected() as (ours, theirs):
        one = subscriber(ours, MQTT, template, 3)
        feed(one, theirs, stream(template, [0, 1]) + bytes(again), 100_000)
        assert one.received == 3 and not one.done
        assert one.delivery_check.to_json(3) == {"received": 3, "lost": 1, "duplicates": 1, "reordered": 0}


def test_latencies_are_from_due_to_read() -> None:
    template = MQTT.delivery("t", 100, 0)
    with connected() as (ours, theirs):
        latencies = Periods()
        one = subscriber(ours, MQTT, template, 12, latencies)
        feed(one, theirs, stream(template, range(12), time.monotonic_ns() - 1_000_000_000), 300)
        (found,) = latencies.latencies
        assert found.count == 12
        assert found.summary_us()["p50"] >= 1e6


def test_a_ping_between_messages_of_nats_is_not_a_message() -> None:
    template = NATS.delivery("t", 100, 0)
    with connected() as (ours, theirs):
        one = subscriber(ours, NATS, template, 10)
        feed(one, theirs, stream(template, range(4)) + b"PING\r\n" + stream(template, range(4, 10)), 333)
        one.look()
        assert one.delivery_check.to_json(10) == {"received": 10, "lost": 0, "duplicates": 0, "reordered": 0}


def test_a_stream_that_is_something_else_is_an_error() -> None:
    template = MQTT.delivery("t", 100, 0)
    with connected() as (ours, theirs), pytest.raises(ConnectionError, match="message 2 differs"):
        feed(
            subscriber(ours, MQTT, template, 3),
            theirs,
            stream(template, [0, 1]) + b"?" * template.size_bytes,
            100_000,
        )
