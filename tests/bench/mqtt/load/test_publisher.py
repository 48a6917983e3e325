"""One publishing connection: what it sends, when, and what it makes of the answers."""

import time

import numpy as np
import pytest

from tests.bench.mqtt.sockets import connected, read_exactly
from timestone_bench.mqtt.load.client_protocols import Mqtt
from timestone_bench.mqtt.load.publisher import Publisher, Schedule

WIRE = Mqtt()
QOS1, QOS0 = WIRE.publication("t", 100, 1), WIRE.publication("t", 100, 0)


def acks(*ids: int) -> bytes:
    return b"".join(b"\x40\x02" + one.to_bytes(2, "big") for one in ids)


def test_it_keeps_to_its_window_and_continues_as_acknowledgements_arrive() -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS1, 4, messages=5, window=3)
        assert publisher.send(publisher.room, time.monotonic_ns()) == 3
        assert publisher.room == 0
        rows = QOS1.packets(bytearray(read_exactly(theirs, 3 * QOS1.size_bytes)), 3)
        assert rows["number"].tolist() == [0, 1, 2] and rows["id"].tolist() == [1, 2, 3]
        assert set(rows["sender"]) == {4}
        # Half an acknowledgement says nothing yet.
        theirs.sendall(acks(1, 2)[:6])
        wait_and_receive(publisher)
        assert (publisher.acknowledged, publisher.room) == (1, 1)
        theirs.sendall(acks(1, 2)[6:] + acks(3))
        wait_and_receive(publisher)
        assert publisher.send(publisher.room, time.monotonic_ns()) == 2
        theirs.sendall(acks(4, 5))
        wait_and_receive(publisher)
        assert publisher.done and publisher.latencies.count == 5 and not publisher.misordered_acks


def wait_and_receive(publisher: Publisher) -> None:
    publisher.channel.setblocking(True)
    before = publisher.acknowledged
    while publisher.acknowledged == before:
        publisher.receive(time.monotonic_ns())
    publisher.channel.setblocking(False)


def test_acknowledgements_out_of_order_are_counted() -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS1, 0, messages=3, window=3)
        publisher.send(3, time.monotonic_ns())
        theirs.sendall(acks(2, 1, 3))
        wait_and_receive(publisher)
        assert (publisher.acknowledged, publisher.misordered_acks) == (3, 2)


def test_packet_ids_begin_again_wherever_the_last_one_falls() -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS1, 0, messages=66_000, window=97)
        ids: list[int] = []
        waiting: list[int] = []
        while not publisher.done:
            sent = publisher.send(publisher.room, time.monotonic_ns())
            rows = QOS1.packets(bytearray(read_exactly(theirs, sent * QOS1.size_bytes)), sent)
            ids += rows["id"].tolist()
            waiting += rows["id"].tolist()
            answered = publisher.acknowledged + len(waiting[:60])
            theirs.sendall(acks(*waiting[:60]))
            del waiting[:60]
            while publisher.acknowledged < answered:
                wait_and_receive(publisher)
        assert ids == [number % 65_535 + 1 for number in range(66_000)]
        assert publisher.latencies.count == 66_000 and not publisher.misordered_acks


def test_acknowledgements_in_order_are_compared_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(*_: object) -> None:
        raise AssertionError("looked at one by one")

    monkeypatch.setattr(Publisher, "_note_misordered", one_by_one)
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS1, 0, messages=700, window=350)
        for first in (1, 351):
            publisher.send(350, time.monotonic_ns())
            theirs.sendall(acks(*range(first, first + 350)))
            while publisher.acknowledged < first + 349:
                wait_and_receive(publisher)
        assert publisher.done


@pytest.mark.parametrize("answer", [b"\x50\x02\x00\x01", acks(1, 2, 3, 4)])
def test_an_invalid_answer_is_an_error(answer: bytes) -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS1, 0, messages=9, window=3)
        publisher.send(3, time.monotonic_ns())
        theirs.sendall(answer)
        ours.setblocking(True)
        with pytest.raises(ConnectionError, match="expected PUBACKs"):
            publisher.receive(time.monotonic_ns())


def test_at_qos_0_it_is_done_when_the_server_has_passed_the_barrier() -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS0, 0, messages=2, window=1)
        publisher.send(2, time.monotonic_ns())
        publisher.send_barrier("end")
        sent = read_exactly(theirs, 2 * QOS0.size_bytes + len(WIRE.barrier("end")))
        assert sent.endswith(WIRE.barrier("end")) and not publisher.done
        theirs.sendall(acks(65_535))
        ours.setblocking(True)
        publisher.receive(time.monotonic_ns())
        assert publisher.done


def test_what_is_sent_late_carries_the_time_it_was_due() -> None:
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, QOS0, 0, messages=4, window=1)
        publisher.schedule = Schedule(start_ns=1000, interval_ns=250.0)
        publisher.send(1, 99_999)
        publisher.send(3, 99_999)
        rows = QOS0.packets(bytearray(read_exactly(theirs, 4 * QOS0.size_bytes)), 4)
        assert rows["sent"].tolist() == [1000, 1250, 1500, 1750]
        assert publisher.schedule.due_count(1500) == 3


def test_its_messages_go_to_its_topics_in_turn() -> None:
    template = WIRE.publication("t/000000", 100, 0, 6)
    with connected() as (ours, theirs):
        publisher = Publisher(ours, WIRE, template, 0, messages=5, window=1)
        publisher.topics = np.array([b"000000", b"000001"])
        publisher.send(5, 0)
        rows = template.packets(bytearray(read_exactly(theirs, 5 * template.size_bytes)), 5)
        assert rows["topic"].tolist() == [b"000000", b"000001", b"000000", b"000001", b"000000"]
