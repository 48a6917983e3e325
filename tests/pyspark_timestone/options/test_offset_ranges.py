"""Ranges of offsets as text."""

import json

import pytest

from pyspark_timestone.errors import InvalidOffsets
from pyspark_timestone.offsets import LogPartition, OffsetRange, Origin
from pyspark_timestone.options.offset_ranges import OffsetRanges

A, B = LogPartition("telemetry", 0), LogPartition("alarms", 2)


def test_ranges_survive_their_text() -> None:
    ranges = OffsetRanges(
        (OffsetRange(B, 7, 7), OffsetRange(A, 0, 100), OffsetRange(A, 500, 600)), {A: Origin(0xC3A1, 1)}
    )
    assert ranges.to_text() == (
        '{"alarms": {"2": {"ranges": [[7, 7]]}}, "telemetry": {"0": {"epoch": 1, "id": "000000000000c3a1",'
        ' "ranges": [[0, 100], [500, 600]]}}}'
    )
    assert OffsetRanges.from_json(json.loads(ranges.to_text())) == ranges
    assert ranges.keys == (B, A)


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"telemetry": 1},
        {"telemetry": {"x": {"ranges": []}}},
        {"telemetry": {"0": []}},
        {"telemetry": {"0": {"ranges": [[1]]}}},
        {"telemetry": {"0": {"ranges": [[1, 2.5]]}}},
        {"telemetry": {"0": {"ranges": [[True, 2]]}}},
        {"telemetry": {"0": {"ranges": [[3, 2]]}}},
        {"telemetry": {"0": {"ranges": [[-1, 2]]}}},
        {"telemetry": {"0": {"ranges": [[1, 10**19]]}}},
        {"telemetry": {"0": {"ranges": [[1, 2]], "id": "no hex"}}},
    ],
)
def test_nonsense_is_refused(data: object) -> None:
    with pytest.raises(InvalidOffsets):
        OffsetRanges.from_json(data)
