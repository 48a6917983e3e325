"""Sampled traces of a real front: the steps are in order, few are taken, and none while they are off."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec.packets import Puback, Publish
from mqtt_front.kernel import loops
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import wait_for


def traced(server: MqttServer) -> list[Mapping[str, Any]]:
    """Return the list to which traces are added from now on."""
    found: list[Mapping[str, Any]] = []
    broker = server.front._broker
    assert broker is not None

    def report(event: str, facts: Mapping[str, Any]) -> None:
        if event == "trace":
            found.append(facts)

    broker.report = report
    return found


@pytest.mark.parametrize("polled", [True, False])
@pytest.mark.parametrize(("ack", "has_flush"), [("written", False), ("synced", True)])
def test_trace_has_each_step_of_a_publish_to_its_first_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ack: str, has_flush: bool, polled: bool
) -> None:
    if not polled:
        monkeypatch.setattr(loops, "Sockets", None)
    with (
        mqtt_server(tmp_path, ack=ack, traces_per_s=100) as server,
        RawClient(server.address, 5) as publisher,
        RawClient(server.address, 4) as subscriber,
    ):
        found = traced(server)
        subscriber.connect("subscriber", clean=True)
        subscriber.subscribe("t")
        publisher.connect("publisher", clean=True)
        publisher.send(Publish("other", b"x", 1, packet_id=1))  # not for the subscriber
        publisher.expect(Puback)
        for number in range(2, 20):
            publisher.publish("t", b"y", packet_id=number)
            time.sleep(0.01)
        wait_for(lambda: sum("deliver" in names(one) for one in found) >= 2)
        for one in found:
            spans = {span["name"]: (span["from_us"], span["to_us"]) for span in one["spans"]}
            assert (one["log"], one["partition"], one["records"], one["acknowledged"]) == ("mqtt", 0, 1, 1)
            assert ("flush" in spans) is has_flush
            publish, append, acknowledge = spans["publish"], spans["append"], spans["acknowledge"]
            assert publish[0] == append[0] <= append[1] <= acknowledge[0] <= acknowledge[1] == publish[1]
            if has_flush:
                assert (append[1], spans["flush"][1]) == (spans["flush"][0], acknowledge[0])
            assert ("deliver" in spans) is (one["offset"] > 0)
            if "deliver" in spans:
                assert append[1] == spans["deliver"][0] <= spans["deliver"][1]
        assert len({one["offset"] for one in found}) == len(found)


def names(facts: Mapping[str, Any]) -> list[str]:
    return [span["name"] for span in facts["spans"]]


def test_trace_at_level_memory_is_acknowledged_once_before_its_records_are_written(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, ack="memory", traces_per_s=100) as server,
        RawClient(server.address, 4) as subscriber,
        RawClient(server.address, 4) as publisher,
    ):
        found = traced(server)
        subscriber.connect("subscriber", clean=True)
        subscriber.subscribe("t")
        publisher.connect("publisher", clean=True)
        publisher.publish("t", b"x", packet_id=1)
        wait_for(lambda: found)
        assert found[0]["acknowledged"] == 1


def test_trace_that_waits_for_a_delivery_is_reported_when_the_front_stops(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, ack="synced", traces_per_s=100) as server,
        RawClient(server.address, 4) as publisher,
    ):
        found = traced(server)
        publisher.connect("publisher", clean=True)
        publisher.publish("t", b"x", packet_id=1)
        assert not found
    assert [names(one) for one in found] == [["publish", "append", "flush", "acknowledge"]]


@pytest.mark.slow
def test_traces_are_as_few_as_asked_for(tmp_path: Path) -> None:
    for per_s in (0, 1):
        with mqtt_server(tmp_path / str(per_s), traces_per_s=per_s) as server:
            found, began_s = traced(server), time.monotonic()
            with RawClient(server.address, 4) as client:
                client.connect("c", clean=True)
                for number in range(1, 200):
                    client.publish("t", b"x", packet_id=number)
            wait_for(lambda: per_s == 0 or found)  # noqa: B023
            assert len(found) <= per_s * (time.monotonic() - began_s + 1)
            broker = server.front._broker
            assert broker is not None and (per_s or not broker.traces.is_open)
