"""Decides the answers to publishes: which PUBACK or PUBREC, with which reason, in one write a connection.

Called once the submissions of a turn are settled: their records are in the logs as durably as configured, or have
failed."""

from collections.abc import Callable, Sequence

from mqtt_front.codec.frame import with_reason
from mqtt_front.ingest.turn import Turn
from mqtt_front.kernel.publish_fast_path import PublishColumns, Source
from mqtt_front.reasons import Reason

REPEATED = 1 << 32
"""Instead of the number of a log: the answer is that of an earlier publish."""
_FAILED = Reason.IMPLEMENTATION_SPECIFIC_ERROR


def answer_turns(turns: Sequence[Turn], acknowledge_all: Callable[[list[PublishColumns]], None]) -> None:
    """Answer turns with one write a source, regardless of the number of turns. acknowledge_all: sends the answers of
    turns that the fast path collected, all of them successes."""
    gathered = [turn.gathered for turn in turns if turn.gathered is not None and not turn.uneven]
    if len(gathered) == len(turns):
        acknowledge_all(gathered)
        return
    writes: dict[Source, list[bytes]] = {}
    counts: dict[Source, int] = {}
    for turn in turns:
        for source, acknowledgements, number in turn.all_answers():
            reason = _reason(turn, source, acknowledgements, number)
            if source.exactly_once:
                source.settled(acknowledgements, reason)
            if reason and source.level < 5:
                source.refuse(f"a publish was refused: {Reason(reason).name}")
                continue
            answer = with_reason(acknowledgements, reason) if reason else acknowledgements
            writes.setdefault(source, []).append(answer)
            counts[source] = counts.get(source, 0) + len(acknowledgements) // 4
    for source, parts in writes.items():
        source.acknowledge(parts[0] if len(parts) == 1 else b"".join(parts), counts[source])


def acknowledge_each(turns: list[PublishColumns]) -> None:
    """Send the answers of turns through their connections: `acknowledge_all` without the poller."""
    answers: dict[Source, list[bytes]] = {}
    for gathered in turns:
        for source, answer in zip(gathered.sources, gathered.answers, strict=True):
            if answer:
                answers.setdefault(source, []).append(answer)
    for source, parts in answers.items():
        data = b"".join(parts)
        source.acknowledge(data, len(data) // 4)


def _reason(turn: Turn, source: Source, acknowledgements: bytes, number: int) -> int:
    if number == REPEATED:
        reason = 0 if source.has_received(acknowledgements) else int(_FAILED)
    else:
        reason = turn.reason(number) if turn.uneven else 0
    if reason == Reason.NOT_AUTHORIZED and source.level < 5:
        return 0  # "a positive acknowledgement, or close" [MQTT-3.3.5-2]; its other topics are fine
    return reason
