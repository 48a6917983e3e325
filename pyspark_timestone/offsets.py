"""Offsets of a query, as the JSON that Spark keeps in its checkpoint. The only module for that format; knows no store.

    {"#": {"version": 1,
           "logs":  {"telemetry": {"0": {"epoch": 1, "id": "00c3a1…"}}},
           "since": {"telemetry": {"0": 100}}},
     "telemetry": {"0": 123, "1": 7}}

Beside `#` it is what Spark's Kafka source writes: log, partition, next offset to read. No log can be named `#`.

`logs` says which log was read, so that one deleted and made again under its name is not taken for the old one, and
in which epoch, so that a store that went back in time is noticed.

`since` is the start of the batch that ends here, for partitions whose start does not follow from the previous offsets:
all of them in the first batch, new ones later. Spark's checkpoint keeps only the end of a batch. When the driver dies
in the first one, Spark asks the source for the start again, and for a stream that begins at "latest" the answer has
changed: the batch would be empty and its records lost. With `since`, a batch that is run again begins at the same
offsets.

Spark compares these texts, not their meaning: the same offsets have to give the same text, hence the order.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from pyspark_timestone.errors import InvalidOffsets
from timestone.settings_schema import COUNTED_MOST

FORMAT_VERSION = 1
_OWN = "#"
_PARTITION = re.compile("0|[1-9][0-9]{0,8}")
"""Canonical form only: two spellings of one partition would be two offsets of it."""

Value = TypeVar("Value")


class LogPartition(NamedTuple):
    """Partition of a log. Sorts as in the JSON."""

    log: str
    partition: int

    def __str__(self) -> str:
        return f"{self.log}-{self.partition}"


class Origin(NamedTuple):
    """Identity of a log independent of its name: its random id, and its epoch, which is incremented after a power
    loss."""

    log_id: int
    epoch: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of a checkpoint."""
        return {"epoch": self.epoch, "id": f"{self.log_id:016x}"}


class OffsetRange(NamedTuple):
    """Offsets [start, end) of one partition."""

    log: LogPartition
    start: int
    end: int


Positions = Mapping[LogPartition, int]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Next offset to read of each partition, with the identity of each log."""

    positions: Positions
    origins: Mapping[LogPartition, Origin] = field(default_factory=dict)
    since: Positions = field(default_factory=dict)

    @classmethod
    def first(cls, positions: Positions, origins: Mapping[LogPartition, Origin]) -> Self:
        """Return the start of a query."""
        return cls(positions, origins, since=positions)

    def advanced(
        self, positions: Positions, origins: Mapping[LogPartition, Origin], starts: Positions
    ) -> "SourceOffset":
        """Return the end of the batch that begins here and reads each partition from `starts` to `positions`.

        Returns itself if there is nothing to read, so that its text stays the same; an incremented epoch alone
        changes nothing."""
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
        """Return the ranges of the batch that begins at `previous`, as Spark assumes, and ends here."""
        starts = {**previous.positions, **self.since}
        ranges = [OffsetRange(key, starts.get(key, end), end) for key, end in self.positions.items()]
        return [one for one in ranges if one.start < one.end]

    def to_json(self) -> dict[str, Any]:
        """Return nested dictionaries of plain values for Spark, in an order that depends on the content only."""
        own: dict[str, Any] = {"version": FORMAT_VERSION}
        if self.origins:
            own["logs"] = nested({key: one.to_json() for key, one in self.origins.items()})
        if self.since:
            own["since"] = nested(self.since)
        return {_OWN: own, **nested(self.positions)}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Decode an offset. `#` may be missing, so that offsets can be written by hand. Raises InvalidOffsets."""
        if not isinstance(data, Mapping):
            raise InvalidOffsets(f"expected offsets as an object of logs, got {data!r:.60}")
        own = data.get(_OWN, {"version": FORMAT_VERSION})
        if not isinstance(own, Mapping) or own.get("version") != FORMAT_VERSION:
            raise InvalidOffsets(
                f"expected offsets of version {FORMAT_VERSION}, got {own!r:.60}; has a newer Timestone written the"
                " checkpoint?"
            )
        positions = flat({name: value for name, value in data.items() if name != _OWN}, _offset)
        return cls(
            positions, flat(own.get("logs", {}), origin_from_json), flat(own.get("since", {}), _offset)
        )


def nested(values: Mapping[LogPartition, Any]) -> dict[str, dict[str, Any]]:
    """Return values of partitions as in the JSON: log, partition, value."""
    logs: dict[str, dict[str, Any]] = {}
    for key in sorted(values):
        logs.setdefault(key.log, {})[str(key.partition)] = values[key]
    return logs


def flat(logs: Any, read: Callable[[Any, str, str], Value]) -> dict[LogPartition, Value]:
    """Return the values that `nested` has nested, each passed through `read` with its log and partition. Raises
    InvalidOffsets."""
    values = {}
    for log, partitions in _items(logs, "logs"):
        for partition, value in _items(partitions, f"partitions of {log!r}"):
            if not _PARTITION.fullmatch(partition):
                raise InvalidOffsets(f"expected a partition number of {log!r}, got {partition!r:.60}")
            values[LogPartition(log, int(partition))] = read(value, log, partition)
    return dict(sorted(values.items()))


def _items(value: Any, what: str) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidOffsets(f"expected an object for {what}, got {value!r:.60}")
    return value.items()


def _offset(value: Any, log: str, partition: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > COUNTED_MOST:
        raise InvalidOffsets(f"expected an offset of {log}-{partition}, got {value!r:.60}")
    return value


def origin_from_json(value: Any, log: str, partition: str) -> Origin:
    """Decode the identity of a log in a checkpoint. Raises InvalidOffsets."""
    try:
        return Origin(int(value["id"], 16), int(value["epoch"]))
    except (KeyError, OverflowError, TypeError, ValueError):
        raise InvalidOffsets(f"expected id and epoch of {log}-{partition}, got {value!r:.60}") from None
