"""Answers to the publishes of a turn, with a connection that keeps what it is given."""

import errno

import pytest

from mqtt_front.codec.frame import frame_acknowledgements, with_reason
from mqtt_front.ingest.puback import REPEATED, acknowledge_each, answer_turns
from mqtt_front.ingest.turn import Turn
from mqtt_front.kernel.publish_fast_path import PublishColumns
from mqtt_front.reasons import Reason

LOG = 0


class Connection:
    def __init__(self, level: int = 5, *, received: bool = True, exactly_once: bool = False) -> None:
        self.level, self.exactly_once, self._received = level, exactly_once, received
        self.sent: list[tuple[bytes, int]] = []
        self.results: list[int] = []
        self.refused: list[str] = []

    def acknowledge(self, data: bytes, count: int) -> None:
        self.sent.append((data, count))

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        self.results.append(reason)

    def has_received(self, acknowledgement: bytes) -> bool:
        return self._received

    def refuse(self, message: str) -> None:
        self.refused.append(message)


def puback(*packet_ids: int) -> bytes:
    return frame_acknowledgements(0x40, [one.to_bytes(2, "big") for one in packet_ids])


def turn_of(*answers: tuple[Connection, bytes, int], error: Exception | None = None) -> Turn:
    turn = Turn()
    turn.answers = list(answers)  # type: ignore[arg-type]
    turn.uneven = error is not None or any(number < 0 for _, _, number in answers)
    if error is not None:
        turn.errors[LOG] = error
    return turn


def never(turns: list[PublishColumns]) -> None:
    raise AssertionError("a turn of the general path")


def test_turns_are_answered_with_one_write_a_connection() -> None:
    one, other = Connection(), Connection()
    turns = [turn_of((one, puback(1), LOG), (other, puback(2), LOG)), turn_of((one, puback(3, 4), LOG))]
    answer_turns(turns, never)
    assert one.sent == [(puback(1, 3, 4), 3)] and other.sent == [(puback(2), 1)]


def test_failed_append_is_answered_with_its_reason() -> None:
    new = Connection()
    answer_turns([turn_of((new, puback(1), LOG), error=OSError(errno.ENOSPC, "no room"))], never)
    assert new.sent == [(with_reason(puback(1), Reason.QUOTA_EXCEEDED), 1)]


@pytest.mark.parametrize("level", [3, 4])
def test_older_clients_are_refused_since_their_puback_has_no_reason(level: int) -> None:
    old = Connection(level)
    answer_turns([turn_of((old, puback(1), LOG), error=OSError(errno.ENOSPC, "no room"))], never)
    assert old.sent == [] and old.refused == ["a publish was refused: QUOTA_EXCEEDED"]


def test_older_clients_get_a_puback_for_a_topic_that_they_may_not_publish_to() -> None:
    old, new = Connection(4), Connection(5)
    refused = -Reason.NOT_AUTHORIZED
    answer_turns([turn_of((old, puback(1), refused), (new, puback(1), refused))], never)
    assert old.sent == [(puback(1), 1)] and old.refused == []
    assert new.sent == [(with_reason(puback(1), Reason.NOT_AUTHORIZED), 1)]


@pytest.mark.parametrize("received", [True, False])
def test_repeated_publish_gets_the_result_of_the_first_one(received: bool) -> None:
    client = Connection(received=received, exactly_once=True)
    answer_turns([turn_of((client, puback(9), REPEATED))], never)
    failed = Reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert client.results == [0 if received else failed]
    assert client.sent == [(puback(9) if received else with_reason(puback(9), failed), 1)]


def test_turns_of_the_fast_path_are_acknowledged_together() -> None:
    one, other = Connection(), Connection()
    gathered = PublishColumns(LOG, 2, 20, b"", b"", b"", b"", [one, other], [10, 10], [puback(1, 2), b""])
    seen: list[list[PublishColumns]] = []
    turn = Turn(gathered)
    answer_turns([turn], seen.append)
    assert seen == [[gathered]]
    acknowledge_each([gathered, gathered])
    assert one.sent == [(puback(1, 2, 1, 2), 4)] and other.sent == []
