"""How far a query has read, as the JSON that Spark keeps in its checkpoint. One home for that format; knows no store.

    {"#": {"version": 1,
           "logs":  {"telemetry": {"0": {"epoch": 1, "id": "00c3a1…"}}},
           "since": {"telemetry": {"0": 100}}},
     "telemetry": {"0": 123, "1": 7}}

Beside `#` it is what Spark's Kafka source writes: log, partition, next offset to read. No log can be named `#`.

`logs` says which log was read, so that one deleted and made again under its name is not taken for the old one, and
in which epoch, so that a store that went back in time is noticed.

`since` is where the batch that ends here began, for partitions of which the offset before says nothing or nothing
right: all of them in the first batch, new ones later. Spark's checkpoint keeps only the end of a batch. When the
driver dies in the first one, Spark asks the source anew for the start, and for a stream that begins at "latest" the
answer has moved on: the batch would be empty and its records lost. So the end carries the start with it, and a
batch that is run again begins where it began.

Spark compares these texts, not their meaning: the same offsets have to give the same text, hence the order.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from pyspark_timestone.errors import InvalidOffsets
from timestone.declared import COUNTED_MOST

FORMAT_VERSION = 1
_OWN = "#"
_PARTITION = re.compile("0|[1-9][0-9]{0,8}")
"""As it is written here, and in no other way: two names of one partition would be two offsets of it."""

Value = TypeVar("Value")


class LogPartition(NamedTuple):
    """One partition of one log. Sorts as the JSON does."""

    log: str
    partition: int

    def __str__(self) -> str:
        return f"{self.log}-{self.partition}"


class Origin(NamedTuple):
    """Which log it is, whatever its name: its random id, and its epoch, which rises after a power loss."""

    log_id: int
    epoch: int

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint has it."""
        return {"epoch": self.epoch, "id": f"{self.log_id:016x}"}


class OffsetRange(NamedTuple):
    """The offsets [start, end) of one partition."""

    log: LogPartition
    start: int
    end: int


Positions = Mapping[LogPartition, int]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The next offset to read of each partition, and which log each of them is."""

    positions: Positions
    origins: Mapping[LogPartition, Origin] = field(default_factory=dict)
    since: Positions = field(default_factory=dict)

    @classmethod
    def first(cls, positions: Positions, origins: Mapping[LogPartition, Origin]) -> Self:
        """Where a query begins."""
        return cls(positions, origins, since=positions)

    def advanced(
        self, positions: Positions, origins: Mapping[LogPartition, Origin], starts: Positions
    ) -> "SourceOffset":
        """The end of the batch that begins here, reading each partition from `starts` to `positions`.

        Itself when there is nothing to read, so that its text stays the same; a risen epoch alone is no news.
        """
        if positions == self.positions and all(starts[key] == self.positions[key] for key in starts):
            return self
        nothing_read_yet = self.since == self.positions
        since = {
            key: start
            for key, start in starts.items()
            if nothing_read_yet or start != self.positions.get(key)
        }
        return SourceOffset(positions, origins, since)

    def ranges_since(self, previous: "SourceOffset") -> list[OffsetRange]:
        """What the batch reads that begins at `previous`, as Spark believes, and ends here."""
        starts = {**previous.positions, **self.since}
        ranges = [OffsetRange(key, starts.get(key, end), end) for key, end in self.positions.items()]
        return [one for one in ranges if one.start < one.end]

    def to_json(self) -> dict[str, Any]:
        """As Spark wants it: nested dictionaries of plain values, in an order that only depends on the content."""
        own: dict[str, Any] = {"version": FORMAT_VERSION}
        if self.origins:
            own["logs"] = nested({key: one.to_json() for key, one in self.origins.items()})
        if self.since:
            own["since"] = nested(self.since)
        return {_OWN: own, **nested(self.positions)}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises InvalidOffsets. `#` may be missing, so that offsets can be written by hand."""
        if not isinstance(data, Mapping):
            raise InvalidOffsets(f"offsets are an object of logs, not {data!r}")
        own = data.get(_OWN, {"version": FORMAT_VERSION})
        if not isinstance(own, Mapping) or own.get("version") != FORMAT_VERSION:
            raise InvalidOffsets(
                f"offsets of format {own!r:.60}; this Timestone reads version {FORMAT_VERSION}."
                " A newer one wrote the checkpoint?"
            )
        positions = flat({name: value for name, value in data.items() if name != _OWN}, _offset)
        return cls(
            positions, flat(own.get("logs", {}), origin_from_json), flat(own.get("since", {}), _offset)
        )


def nested(values: Mapping[LogPartition, Any]) -> dict[str, dict[str, Any]]:
    """Values of partitions as JSON has them: log, partition, value."""
    logs: dict[str, dict[str, Any]] = {}
    for key in sorted(values):
        logs.setdefault(key.log, {})[str(key.partition)] = values[key]
    return logs


def flat(logs: Any, read: Callable[[Any, str, str], Value]) -> dict[LogPartition, Value]:
    """What `nested` has nested, each value through `read`, which is also told of which log and partition it is.
    Raises InvalidOffsets."""
    values = {}
    for log, partitions in _items(logs, "logs"):
        for partition, value in _items(partitions, f"the partitions of {log!r}"):
            if not _PARTITION.fullmatch(partition):
                raise InvalidOffsets(f"{partition!r:.60} of {log!r} is no partition number")
            values[LogPartition(log, int(partition))] = read(value, log, partition)
    return dict(sorted(values.items()))


def _items(value: Any, what: str) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidOffsets(f"{what}: {value!r} is no object")
    return value.items()


def _offset(value: Any, log: str, partition: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > COUNTED_MOST:
        raise InvalidOffsets(f"{value!r} of {log}-{partition} is no offset")
    return value


def origin_from_json(value: Any, log: str, partition: str) -> Origin:
    """Which log a value of a checkpoint names. Raises InvalidOffsets."""
    try:
        return Origin(int(value["id"], 16), int(value["epoch"]))
    except (KeyError, OverflowError, TypeError, ValueError):
        raise InvalidOffsets(f"{value!r} of {log}-{partition} does not say which log it is") from None
