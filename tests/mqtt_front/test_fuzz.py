"""Arbitrary input of a client: only the two protocol errors escape, memory stays bounded, and the answers follow the
specification.

`make fuzz` runs ten million inputs, and for each 3,000 of them 150 events that two kernels must serve alike;
TIMESTONE_FUZZ_INPUTS sets the number here.
"""

import contextlib
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.broker import Broker
from mqtt_front.codec import packets
from mqtt_front.codec.packets import Connack, Disconnect
from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel import loops
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.protocol.connection import Connection, Inbound, State
from mqtt_front.protocol.events import Acknowledgements, Pings, Publishes
from mqtt_front.runtime.threads import Threads
from mqtt_front.security.guard import Guard
from mqtt_front.security.sources import read_sources
from mqtt_front.settings import MqttSettings
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import parse
from tests.support.mqtt_fuzz import cuts, inputs, publishes
from tests.support.mqtt_kernels import each_kernel
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.waiting import wait_for
from timestone.config import Ack
from timestone.store import Store

INPUTS = rounds(default=6_000, variable="TIMESTONE_FUZZ_INPUTS")
EVENT_RUNS = max(1, INPUTS // 3000)
LEVELS = (3, 4, 5)
INBOUND = Inbound(packet_bytes=2048, receive_maximum=20, topic_alias_maximum=8, connect_bytes=1024)


def heard(connection: Connection, pieces: list[bytes]) -> tuple[list[object], MqttError | None]:
    """Return the events, independent of their runs, and the error that ended them."""
    events: list[object] = []
    try:
        for piece in pieces:
            for event in connection.receive_data(piece):
                if isinstance(event, Publishes):
                    events += event.rows()
                elif isinstance(event, Acknowledgements):
                    events += [(event.kind, one, event.reason) for one in event.packet_ids]
                elif isinstance(event, Pings):
                    events += [Pings(1)] * event.ping_count
                else:
                    events.append(event)
            assert len(connection._partial) <= INBOUND.packet_bytes
    except (MalformedPacket, ProtocolViolation) as error:
        fault = error
    else:
        return events, None
    assert connection.state is State.ENDED
    assert fault.reason.is_error
    return events, fault


@pytest.mark.parametrize("level", LEVELS)
def test_random_bytes_give_events_or_one_of_two_errors_in_any_pieces(level: int) -> None:
    seed = run_seed(f"connection {level}")
    chance = random.Random(seed)
    for number, data in zip(range(INPUTS // 4), inputs(chance, level), strict=False):
        with told_on_failure(TIMESTONE_SEED=seed, number=number, data=data.hex()):
            events, error = heard(Connection(INBOUND), [data])
            again, other = heard(Connection(INBOUND), cuts(chance, data))
            assert again == events, "the same events, however the bytes arrive"
            assert (error is None) == (other is None)
            if error is not None and other is not None:
                assert error.reason is other.reason


def test_kernels_scan_random_bytes_alike() -> None:
    kernels = each_kernel("scan_publishes")
    seed = run_seed("kernels")
    chance = random.Random(seed)
    streams = [inputs(chance, level) for level in LEVELS]
    for number in range(INPUTS // 4):
        level = LEVELS[number % 3]
        data = next(streams[number % 3])
        start = chance.randrange(len(data) + 1)
        with told_on_failure(TIMESTONE_SEED=seed, number=number, data=data.hex(), start=start):
            first, *others = (kernel.values[0](data, start, len(data), level, 2048) for kernel in kernels)
            for other in others:
                assert tuple(other) == tuple(first)


class Wire:
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        self.written = b""
        self.ended = False

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else default


@contextlib.contextmanager
def serving(store: Store, **bounds: int) -> Iterator[Broker]:
    loop = ManualLoop()
    settings = MqttSettings(topic_levels=5, connects_per_s=0, packet_bytes=2048, **bounds)  # type: ignore[arg-type]
    log = logging.getLogger("timestone.fuzz")
    log.setLevel(logging.CRITICAL)
    with ThreadPoolExecutor(1) as executor:
        guard = Guard(settings, loop, executor, log=log)
        guard.use(read_sources(settings, log))
        router = Router([store.log("mqtt")], [], topic_levels=settings.topic_levels)
        yield Broker(
            router, store.documents, loop, settings, Ack.WRITTEN,
            guard=guard, threads=Threads(executor), steady=store.steady_clock, log=log,
        )  # fmt: skip


@pytest.fixture
def broker(store: Store) -> Iterator[Broker]:
    with serving(store) as made:
        yield made


def spoken_to(broker: Broker, pieces: list[bytes], pauses: random.Random) -> tuple[ClientProtocol, Wire]:
    """A connection that received the pieces, some of them in one turn of the loop, once all is settled."""
    loop, wire, link = broker.deadlines._loop, Wire(), ClientProtocol(broker)
    assert isinstance(loop, ManualLoop)
    link.connection_made(wire)
    for piece in pieces:
        link.get_buffer(-1)[: len(piece)] = piece
        link.buffer_updated(len(piece))
        if pauses.random() < 0.5:
            loop.settle()

    def settled() -> bool:
        loop.settle()
        return broker.ingest.settled

    wait_for(settled)
    link.connection_lost(None)
    loop.settle()
    return link, wire


@pytest.mark.parametrize("level", LEVELS)
def test_fast_path_stores_and_answers_like_the_general_path(tmp_path: Path, level: int) -> None:
    """Where publishes are counted against a rate, they are not gathered."""
    seed = run_seed(f"gathered {level}")
    chance = random.Random(seed)
    with (
        timestone.open(tmp_path / "gathered") as quick_store,
        timestone.open(tmp_path / "usual") as usual_store,
        serving(quick_store) as quick,
        serving(usual_store, client_publishes_per_s=1 << 30) as usual,
    ):
        readers = [store.log("mqtt").reader("earliest") for store in (quick_store, usual_store)]
        for number, data in zip(range(INPUTS // 300), publishes(chance, level), strict=False):
            pieces, pauses = cuts(chance, data), chance.random()
            with told_on_failure(TIMESTONE_SEED=seed, number=number, data=data.hex()):
                outcomes = []
                for broker, reader in zip((quick, usual), readers, strict=True):
                    link, wire = spoken_to(broker, pieces, random.Random(pauses))
                    stored = [(one.topic, one.payload, one.flags) for one in reader]
                    answers = parse(wire.written, link.connection.level)[0]
                    ends = [one.reason for one in answers if isinstance(one, Disconnect)]
                    # What breaks the protocol may overtake acknowledgements, and pings anything.
                    acked = [one for one in answers if isinstance(one, (packets.Puback, packets.Pubrec))]
                    outcomes.append((stored, wire.ended, ends, [] if wire.ended else acked))
                assert outcomes[0] == outcomes[1]
        assert (quick.ingest.gathered_count > 0) == (loops.NAME == "native")
        assert usual.ingest.gathered_count == 0


@pytest.mark.parametrize("level", LEVELS)
def test_random_bytes_are_answered_as_the_specification_requires(broker: Broker, level: int) -> None:
    """A whole server without sockets: it answers in packets of the client's version, sends MQTT 5 clients the reason,
    and closes older clients without a packet."""
    seed = run_seed(f"answers {level}")
    chance = random.Random(seed)
    for number, data in zip(range(INPUTS // 12), inputs(chance, level), strict=False):
        with told_on_failure(TIMESTONE_SEED=seed, number=number, data=data.hex()):
            link, wire = spoken_to(broker, cuts(chance, data), chance)
            spoken = link.connection.level
            answers, rest = parse(wire.written, spoken)
            assert rest == b""
            if answers:
                assert isinstance(answers[0], (Connack, packets.Auth))
                assert not any(isinstance(one, Connack) for one in answers[1:]) or isinstance(
                    answers[0], packets.Auth
                )
            if spoken < 5:
                assert not any(isinstance(one, Disconnect) for one in answers)
            elif wire.ended and link.connected and isinstance(answers[-1], Disconnect):
                assert answers[-1].reason >= 0x80
    assert not broker.connections.links and not broker.sessions.connected


@pytest.mark.skipif(loops.NAME != "native", reason="the compiled kernel was not built: make install")
@pytest.mark.parametrize("run", range(EVENT_RUNS))
def test_kernels_serve_the_same_events_of_clients_alike(run: int, tmp_path: Path) -> None:
    """Each client gets the same deliveries and the same answers in the same order, and the log the same records."""
    seed = run_seed(f"events {run}") + run
    with told_on_failure(TIMESTONE_SEED=seed - run, run=run):
        native, pure = (
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.front_events", str(tmp_path / name), str(seed), "150"],
                env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for name, environment in (("native", {}), ("pure", {"TIMESTONE_PURE": "1"}))
        )  # fmt: skip
        (native_lines, _), (pure_lines, _) = native.communicate(timeout=300), pure.communicate(timeout=300)
        assert (native.returncode, pure.returncode) == (0, 0)
        assert native_lines.startswith("native\n") and pure_lines.startswith("pure Python\n")
        assert native_lines.splitlines()[1:] == pure_lines.splitlines()[1:]
