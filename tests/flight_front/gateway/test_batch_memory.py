"""Memory between gateway and server: each batch is read as it was sent, and every slot is granted again."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from flight_front.gateway.batch_memory import (
    CALL_SLOTS,
    SLOT_BYTES,
    BatchMemory,
    CallSlots,
    Grant,
    new_memory,
)
from tests.support.flight_server import VALUES, RunningFlight, batch, command, options, put
from tests.support.waiting import wait_for

REFUSED = (fl.FlightError, pa.ArrowException)
LARGE = b"x" * 100_000


@pytest.fixture
def sides() -> Iterator[tuple[BatchMemory, BatchMemory]]:
    """The memory as the server and as the gateway have it."""
    fd = new_memory()
    yield BatchMemory(fd), BatchMemory(fd)
    os.close(fd)


def call_of(server: BatchMemory, gateway: BatchMemory) -> tuple[Grant, CallSlots]:
    grant, slots = Grant(server), CallSlots(gateway)
    slots.use(grant.slots)
    return grant, slots


def test_large_messages_go_through_memory_and_others_as_they_are(
    sides: tuple[BatchMemory, BatchMemory],
) -> None:
    grant, slots = call_of(*sides)
    for message in (b"", b"small", bytes(SLOT_BYTES + 1)):
        assert slots.message(message) is message
        assert grant.batch(message) is message
    for message in (LARGE, bytes(SLOT_BYTES)):
        reference = slots.message(message)
        assert len(reference) < 10
        assert bytes(grant.batch(reference)) == message


def test_slot_is_filled_again_when_its_batch_is_viewed_no_more(
    sides: tuple[BatchMemory, BatchMemory],
) -> None:
    grant, slots = call_of(*sides)
    references = [slots.message(bytes([number]) * 100_000) for number in range(CALL_SLOTS)]
    assert slots.message(LARGE) is LARGE  # none is empty
    views = [grant.batch(reference) for reference in references]
    part = views[0][5:10]
    del views[0]
    assert slots.message(LARGE) is LARGE
    assert bytes(part) == bytes(5)
    del part
    assert len(slots.message(LARGE)) < 10
    assert bytes(views[-1][:2]) == bytes([CALL_SLOTS - 1]) * 2


def test_ended_call_writes_into_no_slot_that_another_one_has(
    sides: tuple[BatchMemory, BatchMemory],
) -> None:
    server, gateway = sides
    del server.free[CALL_SLOTS:]
    first, first_slots = call_of(server, gateway)
    viewed = first.batch(first_slots.message(b"viewed" * 20_000))
    unread = first_slots.message(LARGE)
    first.close()
    second, second_slots = call_of(server, gateway)
    assert len(second.slots) == CALL_SLOTS - 1
    sent = [second_slots.message(bytes([number]) * 100_000) for number in range(CALL_SLOTS - 1)]
    assert first_slots.message(LARGE) is LARGE
    assert [second.batch(each)[0] for each in sent] == list(range(CALL_SLOTS - 1))
    assert bytes(viewed[:6]) == b"viewed"
    with pytest.raises(ValueError, match="invalid reference"):
        Grant(server).batch(unread)
    second.close()
    del viewed
    assert sorted(server.free) == list(range(CALL_SLOTS))


def test_slots_run_out_and_calls_without_one_still_send(sides: tuple[BatchMemory, BatchMemory]) -> None:
    server, gateway = sides
    calls = [call_of(server, gateway) for _ in range(len(server.free) // CALL_SLOTS)]
    assert server.free == []
    grant, slots = call_of(server, gateway)
    assert slots.message(LARGE) is LARGE
    for each, _ in calls:
        each.close()
        each.close()
    assert sorted(server.free) == sorted(set(server.free))
    assert len(server.free) == len(calls) * CALL_SLOTS
    grant.close()


def test_message_that_looks_like_a_reference_is_not_taken_for_one(
    sides: tuple[BatchMemory, BatchMemory],
) -> None:
    grant, slots = call_of(*sides)
    taken = slots.message(LARGE)
    forged = slots.message(taken)
    assert forged == b"\x00"
    assert grant.batch(forged) == forged


@pytest.mark.slow
def test_slots_are_granted_again_when_puts_are_abandoned_refused_and_ended(
    server: RunningFlight, log: str
) -> None:
    front = server.front._server
    assert front is not None
    memory = front._service.memory
    assert memory is not None
    before = len(memory.free)
    big = batch([bytes([number]) * 100_000 for number in range(10)])
    wrong = pa.record_batch([pa.array(["text" * 20_000])], names=["value"])
    for _ in range(20):
        with server.connect() as client:
            abandoned = client.do_put(command(log=log), VALUES, options())
            abandoned[0].write_batch(big)
            del abandoned
    for _ in range(20):
        with server.connect() as client, pytest.raises(REFUSED):
            put(client, command(log=log, producer="p"), big, wrong)
    with server.connect() as client:
        answers = put(client, command(log=log), *[big] * 20)
    wait_for(lambda: server.calls.open_count == 0 and len(memory.free) == before)
    found = [record.payload for record in server.store.log(log).reader(answers[0]["first"])]
    assert found[:200] == [bytes([number]) * 100_000 for _ in range(20) for number in range(10)]
