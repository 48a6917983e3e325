"""One batch: all of it or nothing."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone import LogConfig
from timestone_pipeline import MessageConfig, PipelineError
from timestone_pipeline.errors import InvalidConfig
from timestone_pipeline.jobs.batches import Batches

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("step", ["_move_repetitions", "_windows"])
def test_failed_batch_has_no_effect_and_leaves_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(*[message("d", number, at_s=number) for number in range(1500)], b"broken")

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Batches, step, fail)
        with pytest.raises(PipelineError, match="the disk is full"):
            plant.run()
    assert plant.counts() == {}
    assert plant.files("bronze") == plant.files("clean") == []
    assert list(plant.tables.glob("*/*/*.parquet")) == list(plant.tables.glob("*/*.parquet")) == []
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    plant.run()
    assert plant.counts()["clean"] == 1500
    plant.check()


def test_small_segments_do_not_make_a_file_each(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path, log=LogConfig(segment_entries=10))
    for first in range(0, 40, 10):
        plant.send(*[message("d", number) for number in range(first, first + 9)], message("d", first))
    plant.run()
    plant.check()
    assert plant.counts()["duplicates"] == 4
    assert len(plant.files("bronze")) == len(plant.files("clean")) == 1


def test_batch_without_a_message_is_one(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(b"broken")
    plant.run()
    plant.send(message("d", 1))
    plant.run()
    plant.send(message("d", 1))
    plant.run(final=True)
    plant.check()
    assert plant.counts() == {
        "bronze": 3,
        "clean": 1,
        "dead_letters": 1,
        "duplicates": 1,
        "windows": 3,
        "last": 1,
    }


def test_changed_time_field_is_refused_when_the_tables_have_rows(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(message("d", 1))
    plant.run()
    fields = {**plant.config.message.fields, "when": "timestamp"}
    plant.changed(message=MessageConfig(fields=fields, time="when"))
    with pytest.raises(InvalidConfig, match=r"message.time: clean/.* set tables.path to another folder"):
        plant.run(final=True)
