"""What a server records about itself agrees with what its clients counted."""

import asyncio
import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.client import Client, Refused
from mqtt_front.codec.packets import MQTT_5, Connect, Publish, Request
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import mqtt_server
from tests.support.waiting import wait_for
from timestone.metrics.records import (
    EVENTS_LOG,
    METRICS_LOG,
    Sample,
    decode_event,
    decode_sample,
    encode_event,
)
from timestone_cli.server.collection import Collection
from timestone_cli.server.figures import EVENT_COUNT, Events, Figures, continued_trace
from timestone_console.reading.samples import changes

CLIENTS = 12


def serve(directory: Path, *words: str) -> tuple[Running, tuple[str, int]]:
    ready = directory / "ready.json"
    ready.unlink(missing_ok=True)  # of a server that was killed
    options = ["--data", "data", "--mqtt", "127.0.0.1:0", "--ready-file", str(ready), *words]
    running = Running("serve", *options, cwd=directory)
    host, _, port = running.wait_for_json(ready)["fronts"]["mqtt"]["address"].rpartition(":")
    return running, (host, int(port))


def traffic(address: tuple[str, int], first: int) -> Counter[str]:
    """Publish from several clients, one of which reads everything, and return what they counted by client id."""
    counted: Counter[str] = Counter()
    with Client(address, Connect("reader", level=MQTT_5)) as reader:
        reader.subscribe([Request("#", 1)])
        for number in range(first, first + CLIENTS):
            with Client(address, Connect(f"device-{number}", level=MQTT_5)) as device:
                for count in range(number + 1):
                    device.publish(Publish("site/1", b"x", count % 3))
                device.flush()
                counted[f"device-{number}"] += number + 1
        for _ in range(counted.total()):
            message = reader.receive(60)
            assert message is not None and message.topic == "site/1"
            reader.acknowledge(message)
        counted["reader"] = counted.total()
    return counted


def payloads(directory: Path, log: str) -> list[bytes]:
    with timestone.view(directory / "data") as view:
        return [record.payload for record in view.log(log).reader("earliest")]


def last_samples(directory: Path) -> list[Sample]:
    """Return the last sample of each start of the server."""
    found = map(decode_sample, payloads(directory, METRICS_LOG))
    return list({one.started_us: one for one in found}.values())


@pytest.mark.slow
def test_first_interval_after_a_start_has_a_sample_at_both_ends(tmp_path: Path) -> None:
    for start in range(2):
        running, address = serve(tmp_path, "--metrics-interval-ms", "1h")
        with running, Client(address, Connect("device", level=MQTT_5)) as device:
            for _ in range(start + 3):
                device.publish(Publish("site/1", b"x", 1))
            device.flush()
            assert running.stop()[0] == 0
    found = changes([decode_sample(one) for one in payloads(tmp_path, METRICS_LOG)])
    rises = [one and one.rise("timestone_mqtt_publishes_received_total") for one in found]
    assert rises == [3.0, None, 4.0], "a gap while no server ran"


@pytest.mark.slow
def test_final_counts_of_connections_and_of_samples_equal_what_clients_counted_over_restarts(
    tmp_path: Path,
) -> None:
    counted: Counter[str] = Counter()
    for start in range(2):
        running, address = serve(tmp_path, "--metrics-interval-ms", "1h")
        with running:
            counted += traffic(address, start * CLIENTS)
            assert running.stop()[0] == 0
    events = [decode_event(one) for one in payloads(tmp_path, EVENTS_LOG)]
    found: Counter[str] = Counter()
    for one in events:
        if one["event"] == "disconnected":
            found[one["client"]] += one["counts"]["publishes_received"] + one["counts"]["deliveries_sent"]
    assert found == counted
    kinds = Counter(one["event"] for one in events if one["event"] != "traffic")
    assert kinds == {"connected": 2 * (CLIENTS + 1), "disconnected": 2 * (CLIENTS + 1), "hour": 2}
    published = counted.total() - counted["reader"]
    samples = last_samples(tmp_path)
    assert len(samples) == 2
    assert sum(one.values["timestone_mqtt_publishes_received_total"] for one in samples) == published
    assert sum(one.values["timestone_mqtt_deliveries_sent_total"] for one in samples) == counted["reader"]
    # The server's own logs are not among "all logs": neither for commands nor for the figures themselves.
    assert not any("timestone." in name for one in samples for name in one.values)
    with timestone.view(tmp_path / "data") as view:
        assert view.log_names() == [("mqtt", 0)]
        assert view.log_names(server=True) == [("mqtt", 0), (EVENTS_LOG, 0), (METRICS_LOG, 0)]
    lines = command("inspect", "data", cwd=tmp_path).stdout.splitlines()
    assert lines[0] == "data: 1 log, not owned by any process"
    assert lines.index("written by the server about itself:") > lines.index("")
    refused = command("append", str(tmp_path / "data"), METRICS_LOG, stdin=b"x\n")
    assert refused.returncode != 0 and "are the server's own" in refused.stderr


@pytest.mark.slow
def test_mqtt_delivers_samples_and_events_to_who_asks_for_them_only(tmp_path: Path) -> None:
    running, address = serve(tmp_path, "--metrics-interval-ms", "100ms")
    with running:
        with (
            Client(address, Connect("all", level=MQTT_5)) as every,
            Client(address, Connect("monitor", level=MQTT_5)) as monitor,
        ):
            every.subscribe([Request("#", 1), Request("+/metrics", 1)])
            filters = ("$timestone/metrics/#", "$timestone/events/#", "$timestone/clients/#")
            monitor.subscribe([Request(one, 1) for one in filters])
            with Client(address, Connect("device", level=MQTT_5)) as device:
                device.publish(Publish("$timestone/metrics", b"x", 1))
                with pytest.raises(Refused, match="not authorized"):
                    device.flush()
                device.publish(Publish("site/1", b"end", 1))
                device.flush()
            topics: set[str] = set()
            expected = {"$timestone/metrics", "$timestone/events/disconnected", "$timestone/clients/traffic"}
            while not topics >= expected:
                message = monitor.receive(60)
                assert message is not None
                monitor.acknowledge(message)
                topics.add(message.topic)
                assert decode_event(message.payload)["schema"] == 1
            last = every.receive(60)
            assert last is not None and (last.topic, last.payload) == ("site/1", b"end")
        with Client(address, Connect("replay", level=MQTT_5)) as replay:
            replay.subscribe([Request(f"$stream/{METRICS_LOG}/@earliest", 1)])
            first = replay.receive(60)
            assert first is not None and decode_sample(first.payload).interval_ms == 100
            with pytest.raises(Refused, match="refused"):
                replay.subscribe([Request("$share/group/$timestone/#", 1)])
        running.stop()


@pytest.mark.slow
def test_without_an_interval_nothing_is_recorded(tmp_path: Path) -> None:
    running, address = serve(tmp_path, "--metrics-interval-ms", "0")
    with running:
        with Client(address, Connect("one", level=MQTT_5)) as client:
            client.publish(Publish("t", b"x", 1))
            client.flush()
        assert running.stop()[0] == 0
    with timestone.view(tmp_path / "data") as view:
        assert view.log_names(server=True) == [("mqtt", 0)]


def test_events_beyond_the_limit_are_added_up() -> None:
    events = Events(lambda facts: encode_event("disconnected", facts, time_us=1, node="n"))
    for number in range(EVENT_COUNT + 50):
        counts = {"publishes_received": number}
        events.add({"client": f"c{number}", "connection": number, "counts": counts})
    found = [decode_event(one) for one in events.take()]
    assert len(found) == EVENT_COUNT + 1 and "client" not in found[-1]
    assert sum(one["connections"] for one in found) == EVENT_COUNT + 50
    assert sum(one["counts"]["publishes_received"] for one in found) == sum(range(EVENT_COUNT + 50))
    assert found[-1]["numbers"] == list(range(EVENT_COUNT, EVENT_COUNT + 50))
    assert events.take() == []


def last_counts(directory: Path) -> Counter[str]:
    """Return the counts of all connections as docs/formats/metrics.md tells to add them up."""
    open_: dict[tuple[int, int], Any] = {}
    total: Counter[str] = Counter()
    ended: set[tuple[int, int]] = set()
    for one in map(decode_event, payloads(directory, EVENTS_LOG)):
        if one["event"] == "traffic":
            open_[one["started_us"], one["connection"]] = one["counts"]
        elif one["event"] == "disconnected":
            total.update(one["counts"])
            ended |= {(one["started_us"], number) for number in one.get("numbers", [one.get("connection")])}
    for key in open_.keys() - ended:
        total.update(open_[key])
    return total


@pytest.mark.slow
def test_traffic_and_final_counts_equal_what_clients_counted_also_after_a_kill(tmp_path: Path) -> None:
    """The check of a server's own records from outside: connections that are open, have ended, and are cut off."""
    options = ("--metrics-interval-ms", "100ms", "--metrics-client-count", "all")
    running, address = serve(tmp_path, *options)
    published = 0
    with running, contextlib.ExitStack() as stack, Client(address, Connect("all", level=MQTT_5)) as reader:
        reader.subscribe([Request("#", 0)])
        for number in range(50):
            client = Client(address, Connect(f"device-{number}", level=MQTT_5))
            stack.enter_context(client)
            for count in range(number + 1):
                client.publish(Publish("site/1", b"x", count % 3))
            client.flush()
            published += number + 1
            if number % 5 == 0:  # another connection of the same client
                stack.pop_all().close()
        assert all(reader.receive(60) is not None for _ in range(published))
        figures = {"publishes_received": published, "deliveries_sent": published}
        wait_for(lambda: figures.items() <= last_counts(tmp_path).items())
        rows = [one for one in map(decode_event, payloads(tmp_path, EVENTS_LOG)) if one["event"] == "traffic"]
        assert all(one["left_out"] == 0 for one in rows) and len(rows) >= 4
        running.process.kill()
        running.process.wait()
    assert figures.items() <= last_counts(tmp_path).items()
    running, address = serve(tmp_path, *options)  # connection numbers begin again
    with running:
        with Client(address, Connect("device-0", level=MQTT_5)) as client:
            client.publish(Publish("site/1", b"x", 1))
            client.flush()
        assert running.stop()[0] == 0
    assert last_counts(tmp_path)["publishes_received"] == published + 1
    hours = [one for one in map(decode_event, payloads(tmp_path, EVENTS_LOG)) if one["event"] == "hour"]
    assert hours and all(
        one["min"] <= one["mean"] <= one["max"] for hour in hours for one in hour["gauges"].values()
    )


def test_a_full_disk_leaves_samples_out_and_counts_them(tmp_path: Path) -> None:
    async def run(collection: Collection) -> None:
        figures = Figures(collection, 3_600_000)
        await figures.start()
        figures.note("connected", {"client": "one", "connection": 1})
        await figures.stop()

    with timestone.open(tmp_path / "data", min_free_bytes=1 << 62) as store:
        collection = Collection(store, [])
        asyncio.run(run(collection))
    assert collection.skipped == 3
    with timestone.view(tmp_path / "data") as view:
        assert [view.log(*one).end_offset for one in view.log_names(server=True)] == [0, 0]


def test_a_sample_costs_as_much_with_many_clients_as_with_few(tmp_path: Path) -> None:
    """Counted in calls, of Python and of compiled code, which do not depend on the machine."""

    def calls(work: Any) -> int:
        counted = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(None)
        return counted

    with mqtt_server(tmp_path) as server:
        clients: list[RawClient] = []
        costs = []
        try:
            for target in (2, 100):
                while len(clients) < target:
                    clients.append(RawClient(server.address, 4))
                    clients[-1].connect(f"c{len(clients)}", clean=True)
                costs.append(server.call(lambda: calls(server.front.metrics)))
        finally:
            for client in clients:
                client.close()
    # The first flush or a late turn of the loop adds a row to a histogram; a call a client would add 98.
    assert abs(costs[1] - costs[0]) < 20


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ([("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")], "a" * 32),
        ([("traceparent", b"00-" + b"0" * 32 + b"-" + b"b" * 16 + b"-01")], None),
        ([("traceparent", b"01-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")], None),
        ([("traceparent", b"00-" + b"A" * 32 + b"-" + b"b" * 16 + b"-01\n")], None),
        ([("other", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")], None),
    ],
)
def test_sampled_batch_continues_the_trace_of_its_publisher_if_that_is_valid(
    tmp_path: Path, headers: list[tuple[str, bytes]], trace: str | None
) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("mqtt")
        log.append_many([b"x"] * 3)
        log.append(b"y", headers=headers)
        facts = {"log": "mqtt", "partition": 0, "offset": 1, "records": 3}
        found = continued_trace(store, facts)
        assert (found["trace"], found["parent"]) == (trace, "b" * 16) if trace else found["parent"] is None
        assert len(found["trace"] or "") == 32
        assert continued_trace(store, {**facts, "records": 2})["parent"] is None  # of another batch
        assert continued_trace(store, {**facts, "log": "gone"})["parent"] is None
