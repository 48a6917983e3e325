"""What filters of a query leave out: never a record that they let through."""

import json
from typing import Any

import pytest

from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.pushed_filters import PushedFilters

KEY = LogPartition("telemetry", 1)


class Minutes:
    """A log with a record in each second."""

    def offset_at(self, timestamp_us: int) -> int:
        return -(-timestamp_us // 1_000_000)


def filters(*conditions: list[Any], kafka_layout: bool = False) -> PushedFilters:
    return PushedFilters.from_text(json.dumps(conditions), kafka_layout=kafka_layout)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], (10, 90)),
        ([["offset", ">=", [20]]], (20, 90)),
        ([["offset", ">", [20]], ["offset", "<", [30]]], (21, 30)),
        ([["offset", "<=", [30]]], (10, 31)),
        ([["offset", "in", [40, 20, 30]]], (20, 41)),
        ([["offset", "in", [5]]], (10, 10)),
        ([["offset", ">", [1 << 62]]], (90, 90)),
        ([["timestamp", ">", [20_000_000]]], (21, 90)),
        ([["timestamp", ">=", [20_000_000]], ["timestamp", "<=", [29_500_000]]], (20, 30)),
        ([["timestamp", "in", [20_000_000]]], (20, 21)),
        ([["log", "in", ["telemetry", "other"]], ["partition", "in", [1]]], (10, 90)),
        ([["log", "in", ["other"]]], (10, 10)),
        ([["partition", "in", [0]]], (10, 10)),
        ([["partition", ">", [0]]], (10, 90)),
    ],
    ids=str,
)
def test_range_is_narrowed_to_what_may_match(conditions: list[Any], expected: tuple[int, int]) -> None:
    pruned = filters(*conditions).pruned(OffsetRange(KEY, 10, 90), Minutes())
    assert (pruned.start, pruned.end) == expected


@pytest.mark.parametrize(
    ("conditions", "chosen", "expected"),
    [
        ([["topic", "in", ["a/b", "c"]]], (), ("a/b", "c")),
        ([["topic", "in", ["a/b", "c"]]], ("a/#",), ("a/b",)),
        ([["topic", "in", ["c"]]], ("a/#",), None),
        ([["topic", "in", ["a/+"]]], (), ()),
        ([["topic", "in", [""]]], ("a/#",), ("a/#",)),
        ([["topic", "prefix", ["plant/ha"]]], (), ("plant/#",)),
        ([["topic", "prefix", ["plant/hall/"]]], (), ("plant/hall/#",)),
        ([["topic", "prefix", ["plant/"]]], ("a",), ("a",)),
        ([["topic", "prefix", ["pl"]]], (), ()),
        ([["topic", "prefix", ["/x"]]], (), ()),
        ([["topic", "<", ["a"]]], (), ()),
    ],
    ids=str,
)
def test_topics_are_chosen_by_name_and_level(
    conditions: list[Any], chosen: tuple[str, ...], expected: tuple[str, ...] | None
) -> None:
    assert filters(*conditions).topics(chosen) == expected


def test_topic_is_the_log_when_the_layout_is_that_of_kafka() -> None:
    one = filters(["topic", "in", ["other"]], kafka_layout=True)
    assert one.topics(()) == ()
    assert one.pruned(OffsetRange(KEY, 10, 90), Minutes()).end == 10
