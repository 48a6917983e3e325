"""Records parsed again with another schema: dead letters come to life, a column is filled for the past."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone_pipeline import MAINTENANCE, Commit, MessageConfig, backfill, open_tables, reprocess

pytestmark = pytest.mark.spark

NARROW = {"device": "string", "seq": "bigint", "ts": "timestamp", "temperature": "double"}
MESSAGES = [message("d", number, at_s=number) for number in range(1800)]


def again(plant: Plant, **options: bool) -> Commit | None:
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        return reprocess(plant.config, warehouse, plant.spark, **options)


def test_dead_letters_come_to_life_once_the_settings_fit_them(spark: SparkSession, tmp_path: Path) -> None:
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

    # A column more: known for what comes from now on, and for the past when it is parsed again. One message does not
    # fit, and its windows lose it.
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
