"""Windows computed again: late messages are counted, with the same result after several backfills, also beside the
stream."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import START, Plant, message
from timestone_pipeline import MAINTENANCE, Commit, Span, backfill, compact, open_tables
from timestone_pipeline.delta.progress import MINUTE_US
from timestone_pipeline.jobs.backfill import _Backfill

pytestmark = pytest.mark.spark

START_US = int(START.timestamp()) * 1_000_000
MESSAGES = [message(f"d{number % 2}", number // 2, at_s=number) for number in range(3000)]


def minutes(start: int, end: int) -> Span:
    return Span(START_US + start * MINUTE_US, START_US + end * MINUTE_US)


def fold(plant: Plant, span: Span | None = None) -> Commit | None:
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        return backfill(plant.config, warehouse, plant.spark, span)


def test_late_messages_are_counted_once_after_any_number_of_backfills(
    spark: SparkSession, tmp_path: Path
) -> None:
    plant = Plant(spark, tmp_path)
    assert fold(plant) is None, "no tables yet"
    plant.send(*MESSAGES[:2000])
    plant.run()
    open_before = plant.windows()
    late = [message("d0", 9000 + place, at_s=at) for place, at in enumerate((0, 61, 1379, -86_400))]
    plant.send(*late)
    plant.run()
    assert len(plant.rows("late", "offset")) == 4
    assert plant.windows() == open_before, "kept aside"

    fold(plant)
    after = plant.windows()
    wanted = plant.averages([*MESSAGES[:2000], *late])
    assert after == {key: wanted[key] for key in after}
    assert {key[:2] for key in set(after) - set(open_before)} == {(1, "d0"), (5, "d0"), (15, "d0")}
    # The window of five minutes of message 1379 is still open, so no run has counted it.
    assert plant.rows("late", "seq") == [(9002,)]
    assert fold(plant) is None, "and will be by the stream"
    plant.check()

    # The stream continues, and compaction has run: the same again.
    plant.send(*MESSAGES[2000:])
    plant.run(final=True)
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        compact(plant.config, warehouse)
    fold(plant)
    expected = plant.averages([*MESSAGES, *late])
    assert plant.windows() == expected
    assert plant.rows("late", "seq") == []
    assert fold(plant) is None
    for _ in range(2):
        assert fold(plant, minutes(7, 31)) is not None
        assert plant.windows() == expected


def test_range_is_widened_to_whole_closed_windows(spark: SparkSession, tmp_path: Path) -> None:
    assert minutes(7, 31).widened(15) == minutes(0, 45)
    assert minutes(15, 30).widened(15) == minutes(15, 30)
    plant = Plant(spark, tmp_path)
    plant.send(*MESSAGES)
    plant.run()
    before = plant.windows()
    fold(plant, minutes(0, 10_000))
    assert plant.windows() == before
    plant.run(final=True)
    assert plant.windows() == plant.averages(MESSAGES)


def test_concurrent_commits_of_the_stream_are_neither_lost_nor_counted_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(*MESSAGES[:2000])
    plant.run()
    plant.send(message("d0", 9000, at_s=5))
    plant.run()
    write = _Backfill._write_windows

    def run_after(*arguments: Any) -> None:
        # The windows of the backfill are written and not committed: now the stream commits.
        write(*arguments)
        plant.send(message("d1", 9001, at_s=6), *MESSAGES[2000:])
        plant.run(final=True)

    with monkeypatch.context() as patched:
        patched.setattr(_Backfill, "_write_windows", run_after)
        fold(plant, minutes(0, 10_000))
    assert plant.rows("late", "seq") == [(9001,)]
    fold(plant)
    assert plant.windows() == plant.averages(
        [*MESSAGES, message("d0", 9000, at_s=5), message("d1", 9001, at_s=6)]
    )
