"""Kill between any two commits of a batch, twice in a row: the tables are as if nothing had happened."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone_pipeline import (
    MAINTENANCE,
    DeduplicateConfig,
    MessageConfig,
    backfill,
    open_tables,
    reprocess,
    status,
)
from timestone_pipeline.delta.snapshot import Snapshot
from timestone_pipeline.delta.warehouse import Work

pytestmark = pytest.mark.spark

COMMITS = 8
"""Of a batch that has rows for every table."""


def killed_after(commits: int, act: Callable[[], Any]) -> bool:
    """Run `act` until it has committed this often; nothing that it would do then is done. False if it was ready
    before."""
    count = 0
    commit = Snapshot.commit

    def counted(*arguments: Any, **options: Any) -> None:
        nonlocal count
        if count == commits:
            raise RuntimeError("killed")
        count += 1
        commit(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Snapshot, "commit", counted)
        patched.setattr(Work, "close", lambda *_: None)
        try:
            act()
        except Exception as error:
            if "killed" not in str(error):
                raise
            return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_interrupted_batch_is_completed_after_any_commit_twice_in_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    plant = Plant(spark, tmp_path)
    sent: list[bytes] = []
    missing = 0
    for number in range(COMMITS):
        first = 900 * number
        fresh = [message("d", at, at_s=at) for at in range(first, first + 900, 3)]
        late = [message("late", number, at_s=max(0, first - 1500))]
        plant.send(*fresh, *late, fresh[0], b"broken")
        sent += fresh + late
        if number % 3 == 2:  # during the repair of the batch before
            assert killed_after(1, plant.run)
            missing -= 1
        # A run completes the batch before, and then begins one of its own.
        assert killed_after(missing + number, plant.run)
        missing = COMMITS - (number or 1)  # no message of the first batch is late
        state = open_tables(plant.config).state()
        assert [one.number for one in state.tables.values()].count(number + 1) == number
        assert status(plant.config, open_tables(plant.config)).exact
    plant.run()
    plant.check()
    assert plant.counts()["bronze"] == len(sent) + 2 * COMMITS
    assert killed_after(1, lambda: plant.run(final=True)), "windows closed, and the progress does not say so"
    plant.run(final=True)
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        backfill(plant.config, warehouse, plant.spark)
    assert plant.rows("late", "seq") == []
    assert plant.windows() == plant.averages(sent)
    assert plant.counts()["duplicates"] == plant.counts()["dead_letters"] == COMMITS
    assert plant.rows("last", "device", "seq") == [("d", 900 * COMMITS - 3), ("late", COMMITS - 1)]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_other_settings_after_a_kill_move_no_record_that_is_in_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    plant = Plant(spark, tmp_path)
    humid = [message("d", 1), message("d", 2, humidity="humid"), message("d", 1)]
    plant.send(*humid)
    assert killed_after(3, plant.run), "after bronze, clean and dead letters"
    # Without deduplication the third is a message, had the batch not been decided.
    wider = {**MessageConfig().fields, "pressure": "double"}
    plant.changed(message=MessageConfig(fields=wider), deduplicate=DeduplicateConfig(within_s=0))
    plant.run()
    plant.check()
    assert plant.counts() == {"bronze": 3, "clean": 1, "dead_letters": 1, "duplicates": 1, "last": 1}


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("everything", [False, True], ids=["letters", "everything"])
def test_interrupted_reprocess_is_completed_by_the_next(
    spark: SparkSession, tmp_path: Path, everything: bool
) -> None:
    plant = Plant(spark, tmp_path)
    good = [message("d", at, at_s=at) for at in range(0, 1800, 3)]
    hour = datetime.now(UTC) + timedelta(hours=1)
    ahead = [message("ahead", number, ts=hour.isoformat()) for number in (1, 2)]
    plant.send(*good, *ahead, ahead[0], b"broken")
    plant.run()
    plant.changed(message=MessageConfig(future_s=7200))

    def again() -> None:
        warehouse = open_tables(plant.config)
        with warehouse.role(MAINTENANCE):
            reprocess(plant.config, warehouse, plant.spark, everything=everything)

    commits = 0
    while killed_after(commits, again):
        commits += 1
    assert commits > 2, "each try begins with what those before have committed"
    assert not status(plant.config, open_tables(plant.config)).reprocess_interrupted
    plant.check()
    assert plant.rows("dead_letters", "value") == [(b"broken",)]
    assert plant.counts()["duplicates"] == 1
    assert plant.rows("last", "device", "seq") == [("ahead", 2), ("d", 1797)]
    plant.run(final=True)
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        backfill(plant.config, warehouse, plant.spark)
    assert plant.rows("late", "seq") == []
    assert plant.windows() == plant.averages([*good, *ahead])
