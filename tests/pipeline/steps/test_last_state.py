"""The last known state, replaced by the stream and by maintenance at the same time."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone_pipeline import open_tables
from timestone_pipeline.steps.frames import Frames
from timestone_pipeline.steps.last_state import LastState

pytestmark = pytest.mark.spark


def test_last_state_is_merged_with_the_newest_commit(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(message("a", 1), message("b", 5))
    plant.run()
    warehouse = open_tables(plant.config)
    tables = warehouse.tables
    frames = Frames(spark, warehouse)
    with warehouse.work() as work:
        state = warehouse.state()
        old = frames.read(tables.clean, state.of(tables.clean).files())
        last = LastState(warehouse, plant.config.message)
        last.write(frames, state.of(tables.last), old, work)
        # Between the work and the commit the stream replaces the table.
        plant.send(message("a", 7), message("c", 1), message("b", 4))
        plant.run()
        last.commit(frames, state.of(tables.last), old, work, {"reprocess": 1})
    assert plant.rows("last", "device", "seq") == [("a", 7), ("b", 5), ("c", 1)]
    assert len(plant.files("last")) == 1
