"""Ranges of offsets to read, several of a partition, as the text of the option `offsetRanges`. Knows no store.

    {"telemetry": {"0": {"id": "00c3a1…", "epoch": 1, "ranges": [[0, 100], [500, 600]]}}}

`id` and `epoch` say of which log they are, as in a checkpoint (`offsets.py`); else of any of that name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pyspark_timestone.errors import InvalidOffsets
from pyspark_timestone.offsets import LogPartition, OffsetRange, Origin, flat, nested, origin_from_json
from timestone.declared import COUNTED_MOST


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """What to read, in order, and of which logs."""

    ranges: tuple[OffsetRange, ...]
    origins: Mapping[LogPartition, Origin] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[LogPartition, ...]:
        """The partitions that are read, sorted."""
        return tuple(sorted({one.log for one in self.ranges}))

    def to_text(self) -> str:
        """As the option has it."""
        values: dict[LogPartition, dict[str, Any]] = {}
        for one in self.ranges:
            origin = self.origins.get(one.log)
            said = {} if origin is None else origin.to_json()
            values.setdefault(one.log, {**said, "ranges": []})["ranges"].append([one.start, one.end])
        return json.dumps(nested(values))

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises InvalidOffsets."""
        values = flat(data, _partition)
        ranges = [OffsetRange(key, *one) for key, (pairs, _) in values.items() for one in pairs]
        return cls(tuple(ranges), {key: origin for key, (_, origin) in values.items() if origin is not None})


def _partition(value: Any, log: str, partition: str) -> tuple[list[tuple[int, int]], Origin | None]:
    try:
        pairs = [(start, end) for start, end in value["ranges"]]
        if any(type(one) is not int or one > COUNTED_MOST for pair in pairs for one in pair):
            raise TypeError
    except (KeyError, TypeError, ValueError):
        raise InvalidOffsets(f"{value!r} of {log}-{partition} has no ranges like [[0, 100]]") from None
    if any(not 0 <= start <= end for start, end in pairs):
        raise InvalidOffsets(f"{pairs} of {log}-{partition}: a range ends where it starts or later")
    return pairs, origin_from_json(value, log, partition) if "id" in value else None
