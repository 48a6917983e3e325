"""The last known state, replaced by the stream and by maintenance at the same time."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone_pipeline import MAINTENANCE, open_tables
from timestone_pipeline.frames import Frames
from timestone_pipeline.last_state import LastState
from timestone_pipeline.tables import tables_of

pytestmark = pytest.mark.spark


def test_last_state_is_merged_with_the_newest_commit(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(message("a", 1), message("b", 5))
    plant.run()
    warehouse, tables = open_tables(plant.config), tables_of(plant.config)
    frames = Frames(spark, warehouse)
    with warehouse.work(MAINTENANCE) as work:
        old = frames.read(tables.clean, warehouse.ledger.state().of("clean"))
        clean = frames.write(tables.clean, old, work)
        # Between the work and the commit the stream replaces the table.
        plant.send(message("a", 7), message("c", 1), message("b", 4))
        plant.run()
        LastState(warehouse, tables, plant.config.message, MAINTENANCE).commit(
            frames, "reprocess", work, clean
        )
    assert plant.rows("last", "device", "seq") == [("a", 7), ("b", 5), ("c", 1)]
    assert len(plant.files("last")) == 1
