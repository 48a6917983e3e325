"""The expected content of a compacted log, given its appended records."""

from collections.abc import Sequence
from typing import NamedTuple

from timestone import Log, LogView


class Appended(NamedTuple):
    """One appended record; its offset is its place in the list."""

    topic: str | None
    payload: bytes


def append(log: Log, appended: list[Appended], *records: tuple[str | None, bytes]) -> None:
    """Append one after the other, and note it."""
    for topic, payload in records:
        assert log.append(payload, topic=topic) == len(appended)
        appended.append(Appended(topic, payload))


def shown(log: Log | LogView) -> dict[int, Appended]:
    """Return the records that a reader from the start gets, by offset."""
    records = list(log.reader("earliest"))
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), "in order, each once"
    return {record.offset: Appended(record.topic, record.payload) for record in records}


def check(
    log: Log | LogView, appended: Sequence[Appended], *, durable: int | None = None
) -> dict[int, Appended]:
    """Check that no record is invented, and that the last record of each topic is there; or it was a tombstone, and no
    record of the topic is. `durable`: how many records must have survived. Return the records read."""
    found = shown(log)
    for offset, record in found.items():
        assert record == appended[offset]
    alive = appended[: max([durable if durable is not None else len(appended), *(one + 1 for one in found)])]
    last = {record.topic: offset for offset, record in enumerate(alive)}
    for offset, record in enumerate(alive):
        if record.topic is None:
            assert offset in found
        elif offset == last[record.topic] and offset not in found:
            assert record.payload == b""
            assert record.topic not in {one.topic for one in found.values()}, "an older record came back"
    return found
