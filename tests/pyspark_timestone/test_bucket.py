"""Spark reads what a store has uploaded to a bucket: the same rows, without the store."""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import timestone
from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.columns import arrow_schema, source_schema
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading.batch_reader import TimestoneReader
from pyspark_timestone.reading.scan import ScanTask, scan
from tests.support.buckets import upload_store
from tests.support.s3_proxy import s3_proxy
from tests.support.s3_server import BUCKET, s3_server
from tests.tiering.conftest import append
from timestone import LogConfig
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.objects.history import log_histories
from timestone_tiering.objects.layout import Version
from timestone_tiering.operations.restore import restore_store
from timestone_tiering.reading.fetched_segments import FetchedSegments


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A bucket with the offsets [0, 30) of `telemetry` in three segments, each with a topic of its own."""
    url = (tmp_path / "bucket").as_uri()
    upload(tmp_path / "data", url, 31)
    return url


def upload(path: Path, url: str, count: int) -> None:
    with timestone.open(path, log=LogConfig(segment_entries=10)) as store:
        append(store.log("telemetry"), count)
        upload_store(store, open_bucket(url))


@contextmanager
def counted_fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The base offsets of the segments that are used from now on."""
    used: list[int] = []
    original = FetchedSegments.use

    def use(self: FetchedSegments, objects, stored, dictionary=None):  # type: ignore[no-untyped-def]
        used.append(stored.base)
        return original(self, objects, stored, dictionary)

    with monkeypatch.context() as patched:
        patched.setattr(FetchedSegments, "use", use)
        yield used


def tasks_of(url: str, **given: str) -> list[ScanTask]:
    options = read_options({"path": url, **given}, streaming=False)
    tasks = TimestoneReader(options, source_schema()).partitions()
    return [task for task in tasks if isinstance(task, ScanTask)]


def offsets_of(task: ScanTask, url: str, **given: str) -> list[int]:
    options = read_options({"path": url, **given}, streaming=False)
    batches = scan(task, options, arrow_schema(source_schema()))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_plan_fetches_nothing_and_each_task_its_segment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted_fetches(monkeypatch) as used:
        tasks = tasks_of(url, maxRecordsPerPartition="10")
        assert [(task.range.start, task.range.end) for task in tasks] == [(0, 10), (10, 20), (20, 30)]
        assert used == []
        assert offsets_of(tasks[1], url) == list(range(10, 20))
        assert set(used) == {10}


@pytest.mark.parametrize(
    "given",
    [{"topics": "devices/20"}, {"startingOffsets": '{"telemetry":{"0":20}}'}],
    ids=["topic", "offset"],
)
def test_segments_without_chosen_records_get_no_task(
    url: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted_fetches(monkeypatch) as used:
        (task,) = tasks_of(url, **given)
        assert offsets_of(task, url, **given) == list(range(20, 30))
        assert set(used) == {20}


def test_a_plan_stays_readable_while_retention_drops_segments(url: str) -> None:
    tasks = tasks_of(url)
    (history,) = log_histories(open_bucket(url))
    version = Version(history.manifest.version.generation, history.manifest.version.number + 1)
    history.objects.commit(replace(history.manifest.starting_at(20), version=version))
    assert [offset for task in tasks for offset in offsets_of(task, url)] == list(range(30))
    assert [task.range.start for task in tasks_of(url)] == [20]


def test_a_plan_that_is_too_old_says_which_offsets_are_gone(url: str) -> None:
    tasks = tasks_of(url, maxRecordsPerPartition="10")
    bucket = open_bucket(url)
    (history,) = log_histories(bucket)
    version = Version(history.manifest.version.generation, history.manifest.version.number + 1)
    history.objects.commit(replace(history.manifest.starting_at(20), version=version))
    bucket.delete([history.objects.place.manifest(history.manifest.version)])
    with pytest.raises(Exception, match=r"10 of the 10 records .* \[0, 10\) are gone"):
        offsets_of(tasks[0], url)


def test_with_a_tail_a_plan_reads_the_bucket_and_then_the_disk(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = {"tail": str(tmp_path / "data")}
    with timestone.open(tmp_path / "data", log=LogConfig(segment_entries=10)) as store:
        log = store.log("telemetry")
        log.configure(local_retention_bytes=1)
        append(log, 5)
        upload_store(store, open_bucket(url))
        log.apply_retention()
        assert log.local_start_offset >= 30
        tasks = tasks_of(url, **tail)
        append(log, 20)
        upload_store(store, open_bucket(url))
        log.apply_retention()  # what was planned on the disk is in the bucket only
        assert log.local_start_offset > 36
        with counted_fetches(monkeypatch) as used:
            assert [offset for task in tasks for offset in offsets_of(task, url, **tail)] == list(range(36))
            assert set(used) >= {0, 10, 20, 30}
        assert [one for task in tasks_of(url, **tail) for one in offsets_of(task, url, **tail)] == list(
            range(56)
        )


def test_a_tail_needs_a_bucket_and_gives_a_group_its_place(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="invalid tail: expected the URL of a bucket"):
        read_options({"path": str(tmp_path / "data"), "tail": str(tmp_path / "data")}, streaming=False)
    with pytest.raises(InvalidOption, match="invalid group: expected the folder of a store as path or tail"):
        read_options({"path": url, "group": "g"}, streaming=True)
    assert (
        read_options({"path": url, "group": "g", "tail": "data"}, streaming=True).tail
        == Path("data").absolute()
    )


@pytest.mark.spark
def test_a_stream_with_a_tail_reads_on_from_bucket_to_disk(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    options = {"tail": str(tmp_path / "data"), "group": "lake"}
    end = 0
    for _ in range(3):
        run_available(spark, url, tmp_path, **options)
        with timestone.open(tmp_path / "data", log=LogConfig(segment_entries=10)) as store:
            log = store.log("telemetry")
            log.configure(local_retention_bytes=1)
            append(log, 20)
            upload_store(store, open_bucket(url))
            log.apply_retention()
            end = log.end_offset
    run_available(spark, url, tmp_path, **options)
    rows = spark.read.parquet(str(tmp_path / "out")).select("offset").collect()
    assert sorted(row["offset"] for row in rows) == list(range(end))
    assert spark.read.format("timestone").option("tail", options["tail"]).load(url).count() == end
    with timestone.view(tmp_path / "data") as view:
        (commitment,) = view.readers().values()
        assert 31 <= commitment.offset <= end, "it follows the batches, and may be one behind"


@pytest.mark.spark
def test_batch_and_stream_have_the_records_of_the_bucket(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    store = spark.read.format("timestone").load(str(tmp_path / "data")).where("offset < 30")
    remote = spark.read.format("timestone").load(url)
    assert remote.count() == 30
    assert remote.exceptAll(store).count() == store.exceptAll(remote).count() == 0
    for _ in range(2):
        run_available(spark, url, tmp_path)
        upload(tmp_path / "data", url, 20)
    run_available(spark, url, tmp_path)
    (history,) = log_histories(open_bucket(url))
    assert history.manifest.end > 50
    rows = spark.read.parquet(str(tmp_path / "out")).select("offset").collect()
    assert sorted(row["offset"] for row in rows) == list(range(history.manifest.end))


def run_available(spark: SparkSession, url: str, folder: Path, **options: str) -> None:
    query = (
        spark.readStream.format("timestone")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load(url)
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "out"))
    )
    assert query.awaitTermination(120)


_COUNTS = """
import sys
from pyspark_timestone.session import spark_session
spark = spark_session("bucket", master="local[2]")
read = spark.read.format("timestone").option("minPartitions", 8).load(sys.argv[1])
print("counts", read.count(), read.selectExpr("sum(offset)").first()[0], flush=True)
some = read.where("offset < 20")
print("tasks", some.rdd.getNumPartitions(), bytes(some.selectExpr("max(value)").first()[0]).decode())
"""


@pytest.mark.slow
@pytest.mark.spark
def test_with_the_server_deleted_the_bucket_gives_the_same_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts fetch no segment. The values of two segments, which eight tasks read, fetch each once."""
    with s3_server(tmp_path / "s3") as server, s3_proxy(server.port) as proxy:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/{secrets.token_hex(4)}"
        upload(tmp_path / "data", url, 81)
        with timestone.view(tmp_path / "data") as view:
            before = [one for one in view.log("telemetry").reader("earliest") if one.offset < 80]
        shutil.rmtree(tmp_path / "data")
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        done = subprocess.run(
            [sys.executable, "-c", _COUNTS, url], capture_output=True, text=True, timeout=300
        )
        assert f"counts {len(before)} {sum(one.offset for one in before)}" in done.stdout, done.stderr
        assert "tasks 8 record 9" in done.stdout, done.stderr
        fetched = [one.partition("?")[0] for one in proxy.requests if ".segment" in one]
        assert len(fetched) == len(set(fetched)) == 2 and all(one.startswith("GET ") for one in fetched)
        assert server.environment["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
        restore_store(open_bucket(url), tmp_path / "new")
        with timestone.view(tmp_path / "new") as view:
            assert list(view.log("telemetry").reader("earliest")) == before
