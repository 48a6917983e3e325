"""How the socket of a client is read, written and closed."""

from collections.abc import Callable
from functools import partial

import pytest

from mqtt_front.codec import packets
from mqtt_front.reasons import Reason
from tests.support.linked_client import Linked


@pytest.fixture(params=[4, 5])
def linked(request: pytest.FixtureRequest) -> Linked:
    return Linked(request.param).connected()


def test_client_that_reads_no_answers_is_not_read_from(linked: Linked) -> None:
    limit = linked.broker.settings.unsent_bytes
    linked.link.pause_writing()
    reading = []
    steps: list[Callable[[], None]] = [
        partial(linked.link.deliver, bytes(limit)),
        partial(linked.link.deliver, b"x"),
        linked.link.hold,  # the disk has not settled its publishes, either
        linked.link.resume_writing,
        partial(linked.link.release, 0),
    ]
    for step in steps:
        step()
        reading.append(linked.transport.reading)
    assert reading == [True, False, False, False, True]
    assert linked.broker.over["unsent_bytes"] == 1


def test_closing_connection_neither_sends_nor_reads(linked: Linked) -> None:
    linked.link.close()
    linked.link.deliver(b"more")
    linked.link.hold()
    linked.link.release(0)
    linked.link.end(Reason.SERVER_BUSY, "again")
    linked.receive(packets.Pingreq())
    assert linked.transport.written == b""
    assert linked.transport.reading
    assert linked.broker.told == ["arrived", "closing"]


def test_connection_is_aborted_when_the_peer_does_not_read_its_end(linked: Linked) -> None:
    linked.link.close()
    linked.link.overdue()
    assert linked.transport.ended == "aborted"


def told_why() -> Linked:
    linked = Linked(5).connected()
    linked.link.hold()
    linked.link.end(Reason.RECEIVE_MAXIMUM_EXCEEDED, "too many")
    return linked


def test_bytes_received_after_a_final_answer_are_discarded() -> None:
    linked = told_why()
    assert linked.transport.reading, "although nothing was read from it before"
    events = list(linked.broker.events)
    for _ in range(10):
        linked.receive(packets.Pubrel(1))
    assert linked.broker.events == events and linked.transport.ended == "half-closed"
    assert linked.link.eof_received() is False


def test_connection_with_a_final_answer_is_aborted_after_a_time_or_an_amount() -> None:
    late, loud, reset = told_why(), told_why(), Linked(5).connected()
    late.link.overdue()
    for _ in range(17):
        loud.link.buffer_updated(len(loud.broker.buffer))
    reset.transport.is_reset = True
    reset.link.end(Reason.RECEIVE_MAXIMUM_EXCEEDED, "too many")
    assert [each.transport.ended for each in (late, loud, reset)] == ["aborted"] * 3


def test_end_of_file_closes_the_transport(linked: Linked) -> None:
    assert linked.link.eof_received() is False
