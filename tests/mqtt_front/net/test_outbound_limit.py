"""The total of unsent bytes for slow clients is bounded; the slowest are disconnected first."""

import logging
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec.properties import Properties
from mqtt_front.net.outbound_limit import OutboundLimit
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import mqtt_server


class Writer:
    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.cut = False

    def cut_off(self) -> None:
        self.cut = True


class Crowd:
    """Connections that may hold 10 bytes each, and 35 together."""

    def __init__(self) -> None:
        self.writers: list[Any] = [Writer() for _ in range(6)]
        self.sent_bytes, self.loop = 0, ManualLoop()
        self.unsent = OutboundLimit(
            writers=self.writers,
            loop=self.loop,
            limit_bytes=35,
            writer_bytes=10,
            sent_bytes=lambda: self.sent_bytes,
        )

    def stop(self, *numbers: int) -> None:
        for number in numbers:
            self.writers[number].unsent_bytes = 10
            self.sent_bytes += 10
            self.unsent.stopped(self.writers[number])

    @property
    def cut(self) -> list[int]:
        return [number for number, writer in enumerate(self.writers) if writer.cut]


def test_connections_without_reads_for_the_longest_time_are_ended_first() -> None:
    crowd = Crowd()
    crowd.stop(3, 0, 5)
    crowd.unsent.tick()
    assert crowd.cut == [] and crowd.unsent.total_bytes == 30
    crowd.unsent.went_on(crowd.writers[3])  # which reads, and has something again at once
    crowd.stop(3)
    crowd.stop(1)
    assert crowd.cut == [], "not while a client writes"
    crowd.loop.settle()
    assert crowd.cut == [0, 5] and crowd.unsent.total_bytes == 20


def test_connections_below_their_own_bound_count_and_are_ended_last() -> None:
    crowd = Crowd()
    for writer in crowd.writers[:5]:
        writer.unsent_bytes = 6
    crowd.sent_bytes = 30
    crowd.unsent.tick()
    assert crowd.cut == [] and crowd.unsent.total_bytes == 30
    crowd.stop(5)
    crowd.unsent.tick()
    assert crowd.cut == [0, 5] and crowd.unsent.total_bytes == 24


def test_idle_connections_are_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()
    crowd.unsent.tick()
    monkeypatch.setattr(crowd.unsent, "look", lambda: pytest.fail("a client was"))
    crowd.unsent.tick()


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
def test_subscribers_that_never_read_are_disconnected_without_loss_for_anyone(
    tmp_path: Path, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    payload, lasting, count = bytes(30_000), Properties(session_expiry_interval=100), 0
    with mqtt_server(tmp_path, unsent_bytes=4096, total_unsent_bytes=16_000) as server:
        deaf = [RawClient(server.address, level) for _ in range(4)]
        for number, client in enumerate(deaf):
            client.connect(f"deaf-{number}", clean=False, properties=lasting)
            client.subscribe("news")
        with RawClient(server.address) as other, RawClient(server.address) as publisher:
            other.connect("other")
            other.subscribe("news")
            publisher.connect("publisher")
            with caplog.at_level(logging.INFO, "timestone.mqtt"):
                while not server.status()["over_total_unsent_bytes"]:
                    publisher.publish("news", b"%04d" % count + payload)
                    assert other.receive(1)[0].payload[:4] == b"%04d" % count
                    count += 1
                    assert count < 900, "far more than all socket buffers together hold"
            cut = [line for line in caplog.messages if "bytes that it does not read" in line]
            names = [f"deaf-{number}" for number in range(4)]
            # Whose socket was full first is up to the machine.
            assert cut and {line.split("'")[1] for line in cut} <= set(names)
            other.expect_silence()
        for client in deaf:
            client.close()
        for name in names:
            with RawClient(server.address, level) as back:
                back.connect(name, clean=False, properties=lasting)
                received = {one.payload[:4] for one in back.receive(count)}
                assert received == {b"%04d" % number for number in range(count)}
