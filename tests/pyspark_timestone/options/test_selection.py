"""Which logs are read."""

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.selection import Selection

KNOWN = [("telemetry", 1), ("telemetry", 0), ("alarms", 0), ("alarms-old", 0)]


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), "alarms-0 alarms-old-0 telemetry-0 telemetry-1"),
        (Selection(names=("telemetry",)), "telemetry-0 telemetry-1"),
        (Selection(names=("telemetry", "alarms")), "alarms-0 telemetry-0 telemetry-1"),
        (Selection(pattern="alarms.*"), "alarms-0 alarms-old-0"),
        (Selection(pattern="alarms"), "alarms-0"),
        (Selection(pattern="nothing"), ""),
        (Selection(partitions=(LogPartition("telemetry", 1),)), "telemetry-1"),
    ],
)
def test_selection_chooses_in_order(selection: Selection, chosen: str) -> None:
    assert " ".join(str(key) for key in selection.choose(KNOWN)) == chosen


def test_a_missing_log_is_named_together_with_those_that_are_there() -> None:
    with pytest.raises(InvalidOption, match="no log telemtry; it has alarms, alarms-old, telemetry"):
        Selection(names=("telemtry",)).choose(KNOWN)


def test_missing_logs_are_left_out_where_they_may_be_missing() -> None:
    assert Selection(names=("alarms", "gone"), may_be_missing=True).choose(KNOWN) == [
        LogPartition("alarms", 0)
    ]


def test_a_missing_partition_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"no log telemetry-7; it has .*telemetry-1"):
        Selection(partitions=(LogPartition("telemetry", 7),)).choose(KNOWN)


def test_an_empty_store_says_that_it_is_empty() -> None:
    with pytest.raises(InvalidOption, match="no logs yet"):
        Selection(names=("telemetry",)).choose([])


def test_logs_of_the_server_are_chosen_by_name_only() -> None:
    known = [("telemetry", 0), ("timestone.metrics", 0)]
    assert Selection().choose(known) == Selection(pattern=".*").choose(known) == [("telemetry", 0)]
    assert Selection(names=("timestone.metrics",)).choose(known) == [("timestone.metrics", 0)]
    assert Selection(partitions=(LogPartition("timestone.metrics", 0),)).choose(known) == known[1:]
