"""The running pipeline: from a log into all tables, also after damage to batches and checkpoints."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import timestone
from tests.support.buckets import upload_store
from tests.support.plant import LOG, START, Plant, message
from timestone import LogConfig
from timestone_pipeline import (
    DeduplicateConfig,
    PipelineError,
    SourceConfig,
    is_caught_up,
    open_tables,
    run,
    status,
)
from timestone_pipeline.errors import QueryFailed, TablesBehind
from timestone_tiering.buckets.bucket_url import open_bucket

pytestmark = pytest.mark.spark

MESSAGES = [message(f"d{number % 3}", number // 3, at_s=number) for number in range(3000)]
"""Three devices, fifty minutes."""


@pytest.fixture
def plant(spark: SparkSession, tmp_path: Path) -> Plant:
    return Plant(spark, tmp_path, source=SourceConfig(path=str(tmp_path / "data"), records_per_batch=1000))


def test_run_stopped_at_once_is_continued_by_the_next(plant: Plant) -> None:
    """Usually during its first batch, which then is in no table."""
    plant.send(*MESSAGES)
    run(plant.config, plant.spark, stop=lambda: True)
    before = plant.table("bronze").num_rows
    assert before % 1000 == 0
    if not before:  # and as if it had been ended while Spark wrote the plan
        shutil.rmtree(plant.tables / "_checkpoint" / "offsets", ignore_errors=True)
        (plant.tables / "_checkpoint" / "offsets").mkdir(parents=True)
        (plant.tables / "_checkpoint" / "offsets" / ".0.1234.tmp").touch()
    plant.run()
    plant.check()
    assert plant.counts()["bronze"] == len(MESSAGES)


def test_every_record_is_in_one_table_once(plant: Plant) -> None:
    bad = [b"", b"not json", b'{"device": "d1"}', message("clock", 1, at_s=10**9)]
    again = MESSAGES[10:13]
    plant.send(*MESSAGES[:1200], *bad, *again, *MESSAGES[1200:], MESSAGES[5])
    commits = plant.run()
    assert [sum(one.rows for one in commit.added if one.table == "bronze") for commit in commits] == [
        1000
    ] * 3 + [8]
    plant.check()
    assert plant.rows("bronze", "offset") == [(offset,) for offset in range(3008)]
    assert plant.counts() == {
        "bronze": 3008, "clean": 3000, "dead_letters": 4, "duplicates": 4, "last": 3, "windows": 3 * (39 + 7 + 2),
    }  # fmt: skip
    letters = plant.rows("dead_letters", "offset", "problem", "value", "topic")
    assert letters == [
        (1200, "not the JSON that was expected", b"", "site/1"),
        (1201, "not the JSON that was expected", b"not json", "site/1"),
        (1202, "no time", b'{"device": "d1"}', "site/1"),
        (1203, "a time in the future", bad[3], "site/1"),
    ]
    assert plant.rows("last", "device", "seq") == [("d0", 999), ("d1", 999), ("d2", 999)]

    # Windows are closed ten minutes behind the newest message. Those that are closed are right.
    expected = plant.averages(MESSAGES)
    closed = {
        key: values
        for key, values in expected.items()
        if key[2] + timedelta(minutes=key[0]) <= START + timedelta(seconds=2999 - 600)
    }
    assert plant.windows() == closed
    assert plant.run() == [], "nothing new, nothing done"
    plant.run(final=True)
    assert plant.windows() == expected

    found = status(plant.config, open_tables(plant.config))
    assert found.exact
    assert found.problems["not the JSON that was expected"] == 2
    assert [(one.log, one.offset, one.lag) for one in found.logs] == [(LOG, 3008, 0)]
    assert {one.table: one.rows for one in found.tables}["bronze"] == 3008


def test_timestamps_do_not_depend_on_the_sessions_timestamp_type(plant: Plant) -> None:
    plant.send(*MESSAGES[:20])
    plant.spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        plant.run(final=True)
    finally:
        plant.spark.conf.unset("spark.sql.timestampType")
    plant.check()
    assert plant.counts()["clean"] == 20
    assert plant.windows() == plant.averages(MESSAGES[:20])


def test_repeated_batches_change_nothing_on_any_checkpoint(plant: Plant) -> None:
    plant.send(*MESSAGES[:2000])
    plant.run()
    before = plant.counts(), plant.windows()
    checkpoint = plant.tables / "_checkpoint"

    # As if Spark had been killed between the last commit of the tables and its own.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    assert plant.run() == []
    assert (plant.counts(), plant.windows()) == before

    # Without a checkpoint all is read again, in other batches, and offsets already in the tables are skipped.
    shutil.rmtree(checkpoint)
    plant.changed(source=SourceConfig(path=str(plant.data), starting="latest", records_per_batch=1500))
    plant.send(*MESSAGES[2000:])
    assert len(plant.run()) == 1
    plant.check()
    assert plant.counts()["bronze"] == 3000
    plant.run(final=True)
    assert plant.windows() == plant.averages(MESSAGES)


def test_inconsistent_checkpoint_stops_the_run_with_numbers(plant: Plant) -> None:
    plant.send(*MESSAGES[:1500])
    plant.run()
    plant.send(*MESSAGES[1500:])

    # Tables that were copied back from before the last batch.
    for table in open_tables(plant.config).tables.all():
        delta = plant.delta(table.name)
        while (delta.transaction_version("timestone-pipeline") or 0) > 1:
            delta.load_as_version(delta.version() - 1)
        for path in (plant.tables / table.name / "_delta_log").glob("0*.json"):
            if int(path.stem) > delta.version():
                path.unlink()
    with pytest.raises(
        TablesBehind, match=r"mqtt-0: the tables have all records before offset 1000, .* continues at 1500"
    ):
        plant.run()
    shutil.rmtree(plant.tables / "_checkpoint")
    plant.run()
    plant.check()
    assert plant.counts()["bronze"] == 3000

    # Another log under the same name.
    shutil.rmtree(plant.data)
    with timestone.open(plant.data) as store:
        store.log(LOG).append_many(MESSAGES)
    with pytest.raises(QueryFailed, match="mqtt-0: the log was deleted and made again") as raised:
        plant.run()
    assert "\n" not in str(raised.value)
    shutil.rmtree(plant.tables / "_checkpoint")
    with pytest.raises(TablesBehind, match="mqtt-0 was deleted and created again"):
        plant.run()
    assert plant.counts()["bronze"] == 3000


def test_late_messages_are_separated_and_a_wrong_device_clock_makes_no_other_late(plant: Plant) -> None:
    plant.changed(deduplicate=DeduplicateConfig(within_s=0))
    plant.send(*MESSAGES[:2000])
    plant.run()
    late = [message("d0", 9000, at_s=60), message("d1", 9001, at_s=1320)]
    ahead = message("ahead", 1, ts=(datetime.now(UTC) + timedelta(days=365)).isoformat())
    plant.send(*late, ahead, *MESSAGES[2000:], MESSAGES[5])
    plant.run(final=True)
    plant.check()
    assert plant.rows("late", "device", "seq") == [("d0", 9000), ("d1", 9001), ("d2", 1)]
    assert plant.rows("dead_letters", "device", "problem") == [("ahead", "a time in the future")]
    assert ("d2", 1) in plant.rows("clean", "device", "seq"), "without deduplication it counts once more"


def test_log_is_read_from_a_bucket_and_its_newest_records_from_the_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    plant = Plant(spark, tmp_path, log=LogConfig(segment_entries=100))
    for first in (0, 100, 200):
        plant.send(*MESSAGES[first : min(first + 100, 250)])
    url = (tmp_path / "bucket").as_uri()
    with timestone.open(plant.data) as store:
        upload_store(store, open_bucket(url))
    plant.changed(source=SourceConfig(path=url, logs=(LOG,)))
    plant.run()
    uploaded = plant.counts()["bronze"]
    assert 0 < uploaded < 250
    assert status(plant.config, open_tables(plant.config)).logs[0].lag == 0
    plant.changed(source=SourceConfig(path=url, tail=plant.data, logs=(LOG,)))
    assert status(plant.config, open_tables(plant.config)).logs[0].lag == 250 - uploaded
    plant.run()
    assert plant.rows("bronze", "offset") == [(offset,) for offset in range(250)]
    assert is_caught_up(plant.config.source, open_tables(plant.config).state().progress.offset)


def test_error_of_the_source_is_one_line(plant: Plant) -> None:
    plant.changed(source=SourceConfig(path=str(plant.data.parent / "nowhere")))
    with pytest.raises(PipelineError, match=r"nowhere.* is not a Timestone store") as raised:
        run(plant.config, plant.spark, once=True)
    assert "\n" not in str(raised.value)


WITHOUT_SCANS = """
from pyspark_timestone.jvm.columnar import CLASS
from pyspark_timestone.session import spark_session
from timestone_pipeline import PipelineConfig, SparkConfig, session_of

def knows(spark):
    try:
        return bool(spark._jsparkSession.getClass().getClassLoader().loadClass(CLASS))
    except Exception as error:
        assert "ClassNotFoundException" in str(error), error
        return False

config = PipelineConfig(spark=SparkConfig(master="local[1]"))
print("told", knows(session_of(config, scans=False)))
print("again", knows(spark_session(scans=False)))
print("later", knows(session_of(config)))
"""


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_columnar_class_is_compiled_at_the_first_scan() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SCANS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["told", "False", "again", "False", "later", "True"]
