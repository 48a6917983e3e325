"""Runs without anything to do are recognised without Spark."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import timestone
from pyspark_timestone.offsets import LogPartition, SourceOffset
from pyspark_timestone.reading.continuity import origin_of
from timestone.errors import NotAStore
from timestone_pipeline import SourceConfig
from timestone_pipeline.jobs.pending import is_caught_up

KEY, OTHER = LogPartition("mqtt", 0), LogPartition("other", 0)


@pytest.fixture
def source(tmp_path: Path) -> SourceConfig:
    """A store of two logs: five records, and none."""
    with timestone.open(tmp_path / "data") as store:
        store.log("mqtt").append_many([b"x"] * 5)
        store.log("other")
    return SourceConfig(path=str(tmp_path / "data"))


def tables(source: SourceConfig, positions: Mapping[LogPartition, int]) -> SourceOffset:
    """Return the offsets of tables that have read the logs as they are now."""
    with timestone.view(source.path) as store:
        return SourceOffset(positions, {key: origin_of(store.log(*key)) for key in positions})


def test_tables_are_caught_up_when_they_have_every_durable_record(source: SourceConfig) -> None:
    assert is_caught_up(source, tables(source, {KEY: 5}))
    assert is_caught_up(source, tables(source, {KEY: 5, OTHER: 0}))
    assert not is_caught_up(source, tables(source, {KEY: 4}))
    with timestone.open(source.path) as store:
        store.log("other").append(b"y")
    assert not is_caught_up(source, tables(source, {KEY: 5}))
    assert is_caught_up(replace(source, logs=("mqtt",)), tables(source, {KEY: 5, OTHER: 0}))


def test_tables_are_not_caught_up_before_the_first_batch(source: SourceConfig) -> None:
    # With starting = "latest" a first run decides where the tables begin.
    assert not is_caught_up(source, SourceOffset({}))
    assert not is_caught_up(replace(source, logs=("other",)), SourceOffset({}))


def test_tables_are_not_caught_up_when_a_run_has_an_error_to_report(source: SourceConfig) -> None:
    read = tables(source, {KEY: 5})
    assert not is_caught_up(
        source, SourceOffset({**read.positions, LogPartition("gone", 0): 5}, read.origins)
    )
    assert not is_caught_up(replace(source, logs=("mqtt", "gone")), read)
    assert not is_caught_up(source, tables(source, {KEY: 9})), "the store is older than the tables"
    here = read.origins[KEY]
    newer = here._replace(epoch=here.epoch + 1)
    assert not is_caught_up(source, SourceOffset(read.positions, {KEY: newer}))
    another = here._replace(log_id=here.log_id + 1)
    assert not is_caught_up(source, SourceOffset(read.positions, {KEY: another}))


def test_missing_store_is_an_error(source: SourceConfig) -> None:
    with pytest.raises(NotAStore):
        is_caught_up(replace(source, path=f"{source.path}/nowhere"), tables(source, {KEY: 5}))
