"""Who may send when, with sockets that take everything."""

from types import SimpleNamespace

import pytest

from tests.bench.mqtt.sockets import connected, read_exactly
from timestone_bench.mqtt.load import pacing as module
from timestone_bench.mqtt.load.client_protocols import Mqtt
from timestone_bench.mqtt.load.pacing import IDLE_S, FlatOut, InWindow, OnClock
from timestone_bench.mqtt.load.publisher import Publisher, Schedule

WIRE = Mqtt()


def test_in_a_window_the_next_goes_when_one_is_acknowledged() -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, WIRE.publication("t", 100, 1), 0, messages=9, window=2)
        pacing = InWindow([publisher], lambda one: None)
        assert pacing.pump() == IDLE_S and publisher.sent == 2
        theirs.sendall(b"\x40\x02\x00\x01")
        ours.setblocking(True)
        publisher.receive(0)
        pacing.pump()
        assert publisher.sent == 2
        pacing.moved(publisher)
        pacing.pump()
        assert publisher.sent == 3


def test_at_full_speed_no_sender_exceeds_its_limit() -> None:
    with connected() as (ours, _):
        publisher = Publisher(ours, WIRE, WIRE.publication("t", 100, 0), 0, messages=50, window=1)
        pacing = FlatOut(
            [publisher], lambda one: None, barrier="end", allowed=lambda: 20 - publisher.sent, alone=True
        )
        while pacing.pump() == 0:
            pass
        assert publisher.sent == 20


def test_on_the_clock_each_has_its_time_and_what_is_late_goes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = WIRE.publication("t", 100, 0)
    with connected() as (first, first_end), connected() as (second, _):
        publishers = [
            Publisher(one, WIRE, template, at, messages=3, window=1) for at, one in enumerate((first, second))
        ]
        start = 5_000_000_000
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: start + 30_000_000))
        for at, publisher in enumerate(publishers):
            # Every 20 ms one of the two: at 0, 40, 80 the first, at 20, 60, 100 the second.
            publisher.schedule = Schedule(start + at * 20_000_000, 40_000_000.0)
        pacing = OnClock(publishers, lambda one: None, barrier="end")
        assert [pacing.pump(), pacing.pump()] == [0, 0.01]
        assert [publisher.sent for publisher in publishers] == [1, 1]
        for publisher in publishers:
            publisher.schedule = Schedule(start - 1_000_000_000, 40_000_000.0)
        pacing.pump()
        assert [publisher.sent for publisher in publishers] == [3, 3]
        rows = template.packets(bytearray(read_exactly(first_end, 3 * template.size_bytes)), 3)
        assert rows["sent"][0] == start
