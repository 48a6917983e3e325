"""Turning "earliest", offsets and times into the offsets of one log."""

from dataclasses import dataclass

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.bounds import EARLIEST, LATEST, Bound

KEY = LogPartition("telemetry", 0)


@dataclass
class FakeLog:
    """Record n was appended at n seconds. Retention took the first 10, the last 20 of 100 are not synced."""

    start_offset: int = 10
    synced_offset: int = 80
    end_offset: int = 100

    def offset_at(self, timestamp_us: int) -> int:
        return min(max(-(-timestamp_us // 1_000_000), self.start_offset), self.end_offset)


@pytest.mark.parametrize(
    ("bound", "offset"),
    [
        (Bound(EARLIEST), 10),
        (Bound(LATEST), 80),
        (Bound(EARLIEST, offsets={KEY: 33}), 33),
        (Bound(EARLIEST, offsets={KEY: LATEST}), 80),
        (Bound(LATEST, offsets={KEY: EARLIEST}), 10),
        (Bound(LATEST, time_us=33_000_000), 33),
        (Bound(LATEST, time_us=33_000_001), 34),
        (Bound(LATEST, times_us={KEY: 44_000_000}), 44),
    ],
)
def test_bound_is_an_offset_of_the_log(bound: Bound, offset: int) -> None:
    assert bound.offset_in(KEY, FakeLog()) == offset


@pytest.mark.parametrize("time_s", [85, 100, 5000])
def test_a_time_never_reaches_beyond_what_is_synced(time_s: int) -> None:
    bound = Bound(LATEST, "startingTimestamp", time_us=time_s * 1_000_000)
    assert bound.offset_in(KEY, FakeLog()) == 80
    with pytest.raises(InvalidOption, match=r"^invalid startingTimestamp: expected a time"):
        bound.refuse_unmatched(KEY, FakeLog())


def test_a_time_before_the_first_record_is_the_first_record() -> None:
    bound = Bound(LATEST, time_us=0)
    assert bound.offset_in(KEY, FakeLog()) == 10
    bound.refuse_unmatched(KEY, FakeLog())


def test_offsets_have_to_name_every_partition_that_is_read() -> None:
    bound = Bound(EARLIEST, "startingOffsets", offsets={LogPartition("alarms", 0): 5})
    with pytest.raises(InvalidOption, match=r"^invalid startingOffsets: expected .* none for telemetry-0"):
        bound.offset_in(KEY, FakeLog())


@pytest.mark.parametrize(
    "bound",
    [
        Bound(EARLIEST, "startingOffsets", offsets={KEY: 5, LogPartition("alarms", 7): 5}),
        Bound(EARLIEST, "startingOffsets", times_us={KEY: 5, LogPartition("alarms", 7): 5}),
    ],
    ids=["offsets", "times"],
)
def test_offsets_and_times_that_name_a_partition_that_is_not_read_are_refused(bound: Bound) -> None:
    bound.refuse_others([KEY, LogPartition("alarms", 7)])
    with pytest.raises(InvalidOption, match=r"expected .* read \(telemetry-0\), got alarms-7 too"):
        bound.refuse_others([KEY])


def test_partitions_of_a_bound_that_does_not_count_are_not_looked_at() -> None:
    Bound(EARLIEST, "startingTimestamp", time_us=5, times_us={LogPartition("alarms", 7): 5}).refuse_others(
        [KEY]
    )
    Bound(EARLIEST).refuse_others([KEY])
