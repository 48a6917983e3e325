"""One batch: all of it or nothing."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant, message
from timestone_pipeline import PipelineError
from timestone_pipeline.batches import Batches

pytestmark = pytest.mark.spark


def test_a_batch_that_fails_at_its_last_step_has_done_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(*[message("d", number, at_s=number) for number in range(1500)])

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Batches, "_windows", fail)
        with pytest.raises(PipelineError, match="the disk is full"):
            plant.run()
    assert plant.counts() == {}
    assert plant.files("bronze") == plant.files("clean") == []
    assert list((plant.config.tables.path / "_work" / "stream").iterdir()) == []
    plant.run()
    assert plant.counts()["clean"] == 1500
    plant.check()
