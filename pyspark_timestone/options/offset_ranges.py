"""Ranges of offsets to read, several of a partition, as the text of the option `offsetRanges`. Knows no store.

    {"telemetry": {"0": {"id": "00c3a1…", "epoch": 1, "ranges": [[0, 100], [500, 600]]}}}

`id` and `epoch` identify the log, as in a checkpoint (`offsets.py`); without them, any log of that name matches."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pyspark_timestone.errors import InvalidOffsets
from pyspark_timestone.offsets import LogPartition, OffsetRange, Origin, flat, nested, origin_from_json
from timestone.settings_schema import COUNTED_MOST


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """Ranges to read, in order, and the logs they belong to."""

    ranges: tuple[OffsetRange, ...]
    origins: Mapping[LogPartition, Origin] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[LogPartition, ...]:
        """Return the partitions that are read, sorted."""
        return tuple(sorted({one.log for one in self.ranges}))

    def to_text(self) -> str:
        """Return the text of the option."""
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
        raise InvalidOffsets(
            f"expected ranges like [[0, 100]] for {log}-{partition}, got {value!r}"
        ) from None
    if any(not 0 <= start <= end for start, end in pairs):
        raise InvalidOffsets(
            f"expected ranges of {log}-{partition} from 0 on that do not end before they start, got {pairs}"
        )
    return pairs, origin_from_json(value, log, partition) if "id" in value else None
