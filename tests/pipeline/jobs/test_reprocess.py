"""Records parsed again with another schema: dead letters become rows, and a new column is filled for the past."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone_pipeline import (
    MAINTENANCE,
    Commit,
    MessageConfig,
    WindowsConfig,
    backfill,
    open_tables,
    reprocess,
)

pytestmark = pytest.mark.spark

NARROW = {"device": "string", "seq": "bigint", "ts": "timestamp", "temperature": "double"}
MESSAGES = [message("d", number, at_s=number) for number in range(1800)]


def again(plant: Plant, **options: Any) -> Commit | None:
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        return reprocess(plant.config, warehouse, plant.spark, **options)


def test_dead_letters_become_rows_when_the_settings_accept_them(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    hour = datetime.now(UTC) + timedelta(hours=1)
    ahead = [message("ahead", number, ts=hour.isoformat()) for number in (1, 2)]
    plant.send(*MESSAGES, *ahead, ahead[0], b"broken")
    plant.run()
    assert plant.counts()["dead_letters"] == 4
    assert again(plant) is None, "as dead as before"

    plant.changed(message=MessageConfig(future_s=7200))
    assert again(plant) is not None
    plant.check()
    assert plant.rows("dead_letters", "value") == [(b"broken",)]
    assert plant.rows("clean", "device", "seq")[:2] == [("ahead", 1), ("ahead", 2)]
    assert plant.counts()["duplicates"] == 1
    assert plant.rows("last", "device", "seq") == [("ahead", 2), ("d", 1799)]
    plant.run(final=True)
    assert again(plant) is None
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        backfill(plant.config, warehouse, plant.spark)
    assert plant.rows("late", "seq") == []
    assert plant.windows() == plant.averages([*MESSAGES, *ahead])


def test_everything_can_be_parsed_again(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path, message=MessageConfig(fields=NARROW))
    late_field = message("d", 5000, at_s=30, humidity="humid")
    plant.send(*MESSAGES, late_field, MESSAGES[3], b"broken")
    plant.run(final=True)
    assert plant.counts()["clean"] == 1801
    before = plant.windows()
    assert before == plant.averages([*MESSAGES, late_field])

    # A new column: filled for new records, and for the past when it is parsed again. One message does not match, and
    # its windows lose it.
    plant.changed(message=MessageConfig(fields={**NARROW, "humidity": "double"}))
    assert again(plant, everything=True) is not None
    plant.check()
    assert {key: plant.counts()[key] for key in ("bronze", "clean", "dead_letters", "duplicates")} == {
        "bronze": 1803, "clean": 1800, "dead_letters": 2, "duplicates": 1,
    }  # fmt: skip
    assert plant.windows() == plant.averages(MESSAGES)
    assert set(plant.rows("clean", "humidity")) == {(50.0,)}
    assert plant.rows("late", "seq") == []
    once = plant.windows(), plant.rows("clean", "offset")
    again(plant, everything=True)
    assert (plant.windows(), plant.rows("clean", "offset")) == once


def test_windows_that_are_switched_off_are_not_made_and_make_no_message_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    plant = Plant(spark, tmp_path, windows=WindowsConfig(minutes=()), message=MessageConfig(fields=NARROW))
    plant.send(*MESSAGES, message("d", 5000, at_s=30))
    plant.run(final=True)
    plant.send(message("d", 5001, at_s=31))
    plant.run(final=True)
    assert again(plant, everything=True) is not None
    assert plant.counts() == {"bronze": 1802, "clean": 1802, "last": 1}

    # Switched on later, they begin with all that is there.
    plant.changed(windows=WindowsConfig(minutes=(15,)))
    plant.send(message("d", 5002, at_s=32))
    plant.run(final=True)
    assert {minutes for minutes, _, _ in plant.windows()} == {15}
    # And switched off again, they stay as they were.
    before = plant.windows()
    plant.changed(windows=WindowsConfig(minutes=()))
    plant.send(message("d", 5003, at_s=33))
    plant.run(final=True)
    assert again(plant, everything=True) is not None
    assert plant.windows() == before
    assert "late" not in plant.counts()


def test_steps_name_the_tables_and_what_windows_cost(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path, message=MessageConfig(fields=NARROW))
    plant.send(*MESSAGES, b"broken")
    steps: list[str] = []
    plant.run(step=steps.append)
    batch = "batch 1 of 1,801 records: "
    assert steps[0].startswith("looking for new records in ")
    assert [one.removeprefix(batch) for one in steps if one.startswith(batch)] == [
        "bronze, clean, dead_letters", "duplicates", "windows", "last",
    ]  # fmt: skip
    steps.clear()
    assert again(plant, everything=True, step=steps.append) is not None
    again_steps = [one.removeprefix("reprocessing 1,801 records: ") for one in steps]
    assert again_steps[:3] == [
        "other rows of clean",
        "other rows of dead_letters",
        "clean, dead_letters, duplicates",
    ]
    assert len(set(steps)) == len(steps), "no step is named twice"
    assert "windows of 1, 5, 15 min from 1,800 messages: up to 5,400 rows, one a device and window" in steps
