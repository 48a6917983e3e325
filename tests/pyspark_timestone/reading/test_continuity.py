"""Is what was promised still there? Every way in which it may not be, and what is said then."""

import logging
from dataclasses import dataclass

import pytest

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.offsets import LogPartition, OffsetRange, Origin
from pyspark_timestone.reading.continuity import Continuity, origin_of

KEY = LogPartition("telemetry", 0)
SAME = Origin(7, 2)
STRICT, LENIENT = Continuity(fail=True), Continuity(fail=False)


@dataclass
class FakeLog:
    """Retention took the first 10 offsets, a power loss 50 to 79."""

    id: int = 7
    epoch: int = 2
    start_offset: int = 10
    synced_offset: int = 95
    end_offset: int = 100
    gap: tuple[int, int] = (50, 80)

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        return self.gap if self.gap[0] < offset < self.gap[1] else None


@pytest.mark.parametrize("position", [10, 49, 50, 80, 99, 100])
@pytest.mark.parametrize("origin", [None, SAME, Origin(7, 1)])
def test_a_proper_place_to_go_on_is_left_alone(position: int, origin: Origin | None) -> None:
    assert STRICT.start(KEY, position, origin, FakeLog()) == position


@pytest.mark.parametrize(
    ("position", "origin", "said", "resumed"),
    [
        (3, SAME, r"offsets 3 to 9 \(7 records\) have been deleted; the log now starts at 10", 10),
        (101, SAME, "offset 101 comes next, but the log ends at 100", 95),
        (60, SAME, "offset 60 comes next, but offsets 50 to 79 were lost", 80),
        (30, Origin(8, 2), "made again .id 0000000000000008 before, 0000000000000007 now", 10),
        (30, Origin(7, 3), "older than the checkpoint: it is in epoch 2, and was read in epoch 3", 30),
    ],
    ids=["retention", "shorter", "power loss", "recreated", "older store"],
)
def test_a_loss_is_told_in_numbers_or_only_warned_of(
    position: int, origin: Origin, said: str, resumed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLoss, match=f"telemetry-0: .*{said}.*failOnDataLoss"):
        STRICT.start(KEY, position, origin, FakeLog())
    with caplog.at_level(logging.WARNING):
        assert LENIENT.start(KEY, position, origin, FakeLog()) == resumed
    assert "continuing" in caplog.text


@pytest.mark.parametrize(
    ("start", "end", "said", "left"),
    [
        (5, 20, r"offsets 5 to 9 \(5 records\) have been deleted", (10, 20)),
        (2, 8, "have been deleted", (10, 10)),
        (90, 120, "offsets up to 119 were planned, but the log ends at 100", (90, 100)),
        (30, 60, "offsets up to 59 were planned, but 50 to 79 were lost", (30, 50)),
    ],
    ids=["retention", "retention took all", "shorter", "power loss"],
)
def test_a_planned_range_that_is_not_whole_is_told(
    start: int, end: int, said: str, left: tuple[int, int]
) -> None:
    with pytest.raises(DataLoss, match=said):
        STRICT.planned(OffsetRange(KEY, start, end), SAME, FakeLog())
    assert LENIENT.planned(OffsetRange(KEY, start, end), SAME, FakeLog()) == OffsetRange(KEY, *left)


def test_a_planned_range_may_span_what_a_power_loss_left_empty() -> None:
    assert STRICT.planned(OffsetRange(KEY, 40, 90), SAME, FakeLog()) == OffsetRange(KEY, 40, 90)


def test_nothing_is_read_of_a_range_that_was_planned_on_another_log() -> None:
    with pytest.raises(DataLoss, match="made again"):
        STRICT.planned(OffsetRange(KEY, 20, 30), Origin(8, 2), FakeLog())
    assert LENIENT.planned(OffsetRange(KEY, 20, 30), Origin(8, 2), FakeLog()) == OffsetRange(KEY, 20, 20)


def test_a_log_that_has_vanished_is_named() -> None:
    with pytest.raises(
        DataLoss, match="telemetry-0: the log was read before and is not in the store any more"
    ):
        STRICT.missing([KEY])


def test_origin_is_the_id_and_the_epoch() -> None:
    assert origin_of(FakeLog()) == SAME
