"""The cost of absent clients: messages take only disk space that they take anyway, sessions a document until they
expire.

For the figures of docs/benchmarks.md:

    TIMESTONE_ABSENT_MESSAGES=1000000 TIMESTONE_ABSENT_SESSIONS=100000 pytest -s tests/mqtt_front/test_absent.py
"""

import time
from pathlib import Path

import pytest

import timestone
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connack, Connect, Puback, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.sessions.session_store import SPACE
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.seeds import rounds
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

MESSAGES = rounds(default=10_000, variable="TIMESTONE_ABSENT_MESSAGES")
SESSIONS = rounds(default=400, variable="TIMESTONE_ABSENT_SESSIONS")
MIB = 1 << 20
_WINDOW = 2_000
_TAIL_BYTES = 64 * MIB


def resident_bytes(pid: int | str = "self") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.timeout(0)
def test_messages_for_an_absent_session_take_no_memory_and_are_delivered_in_order(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server:
        with RawClient(server.address) as client:
            client.connect("absent", clean=False)
            client.subscribe("t")
        with RawClient(server.address) as publisher:
            publisher.connect("publisher")
            before, started_s = resident_bytes(server.process.pid), time.monotonic()
            for first in range(0, MESSAGES, _WINDOW):
                window = range(first, first + _WINDOW)
                publisher.send_bytes(
                    b"".join(
                        encode_packet(Publish("t", b"%-100d" % n, 1, packet_id=n % _WINDOW + 1), 4)
                        for n in window
                    )
                )
                for _ in window:
                    publisher.expect(Puback)
        published_s, grown = time.monotonic() - started_s, resident_bytes(server.process.pid) - before
        with RawClient(server.address) as client:
            started_s = time.monotonic()
            assert client.connect("absent", clean=False).session_present
            most = 0
            for number in range(MESSAGES):
                delivery = client.expect(Publish)
                assert int(delivery.payload) == number
                client.send(Puback(delivery.packet_id))
                if number % 1000 == 0:
                    most = max(most, resident_bytes(server.process.pid) - before)
            drained_s = time.monotonic() - started_s
    with timestone.open(tmp_path) as store:
        size_bytes = len(store.documents.items(SPACE)["absent"])
    print(
        f"\n{MESSAGES} messages: published in {published_s:.1f} s, memory +{grown / MIB:.0f} MiB; drained in "
        f"{drained_s:.1f} s, memory at most +{most / MIB:.0f} MiB; the session is a document of {size_bytes} bytes"
    )
    assert max(grown, most) < _TAIL_BYTES + 48 * MIB, "the tail of the logs is all that may grow"
    assert size_bytes < 64 * 1024


@pytest.mark.timeout(0)
def test_abandoned_sessions_expire_and_are_reclaimed(tmp_path: Path) -> None:
    lasting = Properties(session_expiry_interval=max(1, SESSIONS // 400))
    with timestone.open(tmp_path / "data") as store:
        with mqtt_server(tmp_path, store=store, connects_per_s=0) as server:
            before, started_s = resident_bytes(), time.monotonic()
            for first in range(0, SESSIONS, 200):
                clients = [RawClient(server.address, 5) for _ in range(min(200, SESSIONS - first))]
                for number, client in enumerate(clients, first):
                    client.send(Connect(f"random-{number}", 5, False, properties=lasting))
                for client in clients:
                    assert client.expect(Connack).reason == 0
                    client.close()
            made_s = time.monotonic() - started_s
            wait_for(lambda: server.status()["sessions_connected"] == 0)
            most, held = server.status()["sessions"], resident_bytes() - before
            wait_for(lambda: server.status()["sessions"] == 0, timeout_s=300)
            assert server.status()["sessions_expired"] == SESSIONS
            wait_for(lambda: len(store.documents.items(SPACE)) <= 1, timeout_s=60)
            reclaimed_s = time.monotonic() - started_s - made_s
        left = resident_bytes() - before
        print(
            f"\n{SESSIONS} sessions: made in {made_s:.1f} s ({most} there at the end), memory +{held / MIB:.1f} MiB; "
            f"all gone {reclaimed_s:.1f} s later, memory +{left / MIB:.1f} MiB"
        )
