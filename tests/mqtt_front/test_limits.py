"""Each limit from outside: above it the client gets its reason (MQTT 5) or is closed (MQTT 3), the event is counted and
logged, and other clients are not affected."""

import contextlib
import logging
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Request,
    Suback,
    Subscribe,
    Unsubscribe,
)
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for

LASTING = Properties(session_expiry_interval=100)


@dataclass(frozen=True)
class Case:
    """What a connected client does to come up against a limit, and what it gets for it."""

    limit: str
    settings: dict[str, Any]
    do: Callable[[RawClient], None]
    reason: int
    answer: type[packets.Packet] = Disconnect
    closed: bool = True
    levels: tuple[int, ...] = (4, 5)
    said: str = ""


def publish(topic: str = "t", payload: bytes = b"", **properties: Any) -> Callable[[RawClient], None]:
    return lambda client: client.send(
        Publish(topic, payload, 1, packet_id=1, properties=Properties(**properties))
    )


def many(count: int, packet: packets.Packet) -> Callable[[RawClient], None]:
    return lambda client: client.send(*[packet] * count)


def subscribe(*filters: str) -> Callable[[RawClient], None]:
    return lambda client: client.send(Subscribe(1, tuple(Request(one) for one in filters)))


def new_topics(client: RawClient) -> None:
    client.send(
        *[Publish(f"new/{number}", b"", 0) for number in range(3)], Publish("new/3", b"", 1, packet_id=1)
    )


CASES = [
    Case("packet_bytes", {"packet_bytes": 128}, publish(payload=bytes(200)), 0x95, said="packet_bytes is 128"),
    Case("receive_maximum", {"receive_maximum": 2, "ack": "synced"},
         lambda client: client.send(*[Publish("t", b"", 1, packet_id=n) for n in range(1, 4)]), 0x93, levels=(5,)),
    Case("topic_alias_maximum", {"topic_alias_maximum": 2}, publish(topic_alias=3), 0x94, levels=(5,)),
    Case("client_publishes_per_s", {"client_publishes_per_s": 1}, many(11, Publish("t")), 0x96,
         said="client_publishes_per_s is 1"),
    Case("client_bytes_per_s", {"client_bytes_per_s": 10}, publish(payload=bytes(100)), 0x96),
    Case("client_requests_per_s", {"client_requests_per_s": 1}, many(11, Pingreq()), 0x96),
    Case("client_requests_per_s", {"client_requests_per_s": 1}, subscribe(*"abcdefghijk"), 0x96),
    Case("client_requests_per_s", {"client_requests_per_s": 1},
         lambda client: client.send(Unsubscribe(1, tuple("abcdefghijk"))), 0x96),
    Case("packet_filter_count", {"packet_filter_count": 3}, subscribe(*"abcd"), 0x97,
         said="more than 3 topic filters"),
    Case("packet_filter_count", {"packet_filter_count": 3},
         lambda client: client.send(Unsubscribe(1, tuple("abcd"))), 0x97),
    Case("client_topic_count", {"client_topic_count": 3}, new_topics, 0x97, Puback, closed=False),
    Case("topic_levels", {"topic_levels": 3}, publish("a/b/c/d"), 0x90, Puback, closed=False),
    Case("topic_bytes", {"topic_bytes": 10}, publish("x" * 11), 0x90, Puback, closed=False),
    Case("topic_levels", {"topic_levels": 3}, subscribe("a/b/c/d"), 0x8F, Suback, closed=False),
    Case("topic_bytes", {"topic_bytes": 10}, subscribe("x" * 11), 0x8F, Suback, closed=False),
    Case("subscription_count", {"subscription_count": 1}, subscribe("a", "b"), 0x97, Suback, closed=False),
]  # fmt: skip


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.limit)
def test_client_over_its_limit_gets_the_documented_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: Case, level: int
) -> None:
    if level not in case.levels:
        return
    caplog.set_level(logging.INFO)
    with (
        mqtt_server(tmp_path, **case.settings) as server,
        server.standing_still(),
        RawClient(server.address) as other,
    ):
        other.connect("other")
        with RawClient(server.address, level) as client:
            client.connect("greedy")
            case.do(client)
            packet = client.next_packet()
            while type(packet) not in (case.answer, type(None)):
                packet = client.next_packet()
            if case.answer is Suback:
                assert isinstance(packet, Suback)
                assert packet.reasons[-1] == (case.reason if level == 5 else 0x80)
            elif level == 5:
                assert packet is not None and getattr(packet, "reason") == case.reason  # noqa: B009
            else:
                assert packet is None
            if case.closed and level == 5:
                client.expect_closed()
            elif level == 5:
                client.expect_silence()
        wait_for(lambda: server.status()[f"over_{case.limit}"] == 1)
        lines = [record.getMessage() for record in caplog.records if "'greedy'" in record.getMessage()]
        assert any(case.said in line and "connected: user" not in line for line in lines), lines
        other.expect_silence()
        other.publish("t", b"undisturbed")


@pytest.mark.parametrize("level", [4, 5])
def test_large_connect_is_refused_before_it_is_buffered(tmp_path: Path, level: int) -> None:
    with mqtt_server(tmp_path, connect_bytes=1024, packet_bytes=10_000) as server:
        with RawClient(server.address, level) as client:
            client.connect("c", will=packets.Will("t", bytes(900)))
            client.publish("t", bytes(9000))
        with RawClient(server.address, level) as client:
            client.send(Connect("c" * 1100, level))
            if level == 5:
                assert client.expect(Connack).reason == 0x95
            client.expect_closed()
        assert server.status()["over_connect_bytes"] == 1


def test_fleet_may_reconnect_at_once_and_repeated_reconnects_are_limited(
    tmp_path: Path,
) -> None:
    with mqtt_server(tmp_path, connects_per_s=1) as server, server.standing_still():
        fleet = [RawClient(server.address, 5) for _ in range(10)]
        assert {client.connect(f"c{number}").reason for number, client in enumerate(fleet)} == {0}
        for level, reason in ((5, 0x9F), (4, 3)):
            with RawClient(server.address, level) as late:
                assert late.connect("late").reason == reason
                late.expect_closed()
        fleet[0].expect_silence()
        assert server.status()["over_connects_per_s"] == 2
        for client in fleet:
            client.close()


@pytest.mark.parametrize(
    ("settings", "count", "reasons", "reference"),
    [
        ({"connection_count": 1}, 1, {5: 0x97, 4: 3}, None),
        ({"connection_count": 1, "server_reference": "other:1884"}, 1, {5: 0x9C, 4: 3}, "other:1884"),
        ({"redirect": True, "server_reference": "other:1884"}, 0, {5: 0x9D, 4: 3}, "other:1884"),
    ],
    ids=["refused", "sent to another server", "everybody is sent away"],
)
def test_too_many_clients_are_refused_or_sent_to_another_server(
    tmp_path: Path, settings: dict[str, Any], count: int, reasons: dict[int, int], reference: str | None
) -> None:
    with mqtt_server(tmp_path, **settings) as server:
        inside = [RawClient(server.address) for _ in range(count)]
        for client in inside:
            assert client.connect("inside").reason == 0
        for level, reason in reasons.items():
            with RawClient(server.address, level) as outside:
                answer = outside.connect("outside")
                assert (answer.reason, answer.properties.server_reference) == (
                    reason, reference if level == 5 else None
                )  # fmt: skip
                outside.expect_closed()
        assert server.status()["over_connection_count"] == 2 * count
        for client in inside:
            client.expect_silence()
            client.close()


def test_a_server_that_stops_sends_its_clients_to_another_one(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, server_reference="other:1884") as server:
        client = RawClient(server.address, 5)
        client.connect("c")
    goodbye = client.expect(Disconnect)
    assert (goodbye.reason, goodbye.properties.server_reference) == (0x9C, "other:1884")
    client.close()


@pytest.mark.parametrize("level", [4, 5])
def test_too_many_sessions_are_refused_but_not_the_clients_that_have_one(tmp_path: Path, level: int) -> None:
    with mqtt_server(tmp_path, session_count=1) as server:
        with RawClient(server.address, 4) as client:
            client.connect("known", clean=False)
        with RawClient(server.address, level) as client:
            assert client.connect("new", clean=False, properties=LASTING).reason == (
                0x97 if level == 5 else 3
            )
            client.expect_closed()
        with RawClient(server.address, level) as client:
            assert client.connect("known", clean=False, properties=LASTING).session_present
        assert server.status()["over_session_count"] == 1


def test_a_client_that_floods_and_reads_nothing_costs_bounded_memory(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, client_requests_per_s=0, unsent_bytes=4096) as server,
        RawClient(server.address) as other,
        RawClient(server.address) as deaf,
    ):
        deaf.connect("deaf")
        other.connect("other")

        def flood() -> None:
            with contextlib.suppress(OSError):  # it ends when the socket is shut down
                deaf.send_bytes(b"\xc0\x00" * 50_000_000)  # far more than all socket buffers together hold

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            wait_for(lambda: server.status()["over_unsent_bytes"] >= 1)
            taken = server.status()["bytes_received"]
            for _ in range(20):
                other.expect_silence()
            assert server.status()["bytes_received"] == taken + 20 * 2, "nothing more is read from it"
            assert flooding.is_alive()
        finally:
            deaf.socket.shutdown(socket.SHUT_RDWR)
            flooding.join()
        other.expect_silence()


def test_response_information_is_sent_on_request(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, response_topic_prefix="answers/") as server:
        for asked, told in ((1, "answers/c"), (0, None), (None, None)):
            with RawClient(server.address, 5) as client:
                answer = client.connect("c", properties=Properties(request_response_information=asked))
                assert answer.properties.response_information == told


@pytest.mark.slow
def test_server_waits_without_spinning_when_descriptors_run_out(tmp_path: Path) -> None:
    """RLIMIT_NOFILE of 64 in a separate process: more connections than that wait in the backlog."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.mqtt_server", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        inside = RawClient(address)
        inside.connect("inside")
        crowd = [RawClient(address) for _ in range(80)]
        before = _cpu_ticks(process.pid)
        for _ in range(20):
            inside.expect_silence()
        crowd[-1].send(Connect("waiting", 4))
        with pytest.raises(TimeoutError):
            crowd[-1].next_packet(timeout_s=2)
        assert _cpu_ticks(process.pid) - before < 100, (
            "a second of processor time in two seconds of waiting: it spins"
        )
        for client in crowd[:-1]:
            client.close()
        crowd[-1].expect(Connack)
        inside.expect_silence()
        inside.close()
        crowd[-1].close()
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


def _cpu_ticks(pid: int) -> int:
    """Hundredths of seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_every_limit_has_a_counter(server: MqttServer) -> None:
    counters = {name.removeprefix("over_") for name in server.status() if name.startswith("over_")}
    assert {case.limit for case in CASES} <= counters
