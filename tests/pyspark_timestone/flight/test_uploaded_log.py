"""Logs of a server and its bucket: each offset from one of both, while records move from the disk to the bucket."""

import functools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import timestone_tiering
from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.remote_store import RemoteLog, RemoteStore
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.flight_server import FlightServer
from tests.support.buckets import upload_store
from tests.support.flight_server import flight_server
from tests.support.waiting import wait_for
from tests.tiering.conftest import append
from timestone import LogView
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.config import TierConfig
from timestone_tiering.tier import StoreTier

KEY = LogPartition("t", 0)
VALUES = pa.schema([pa.field("value", pa.binary())])


def older_values(view: LogView, part: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Read the records of a range that a bucket has."""
    batch = view.read(part.start, max_records=part.end - part.start)
    yield pa.record_batch([pa.array([bytes(one.payload) for one in batch], pa.binary())], schema=VALUES)


def read_all(log: RemoteLog) -> list[bytes]:
    part = OffsetRange(KEY, log.start_offset, log.synced_offset)
    found = log.record_batches(part, (), VALUES, None, older_values)
    return [value for batch in found for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize("knows_history", [True, False])
def test_offsets_below_the_disk_come_from_the_bucket_of_the_server(
    tmp_path: Path, knows_history: bool
) -> None:
    bucket = open_bucket((tmp_path / "bucket").as_uri())
    with flight_server(tmp_path) as server:
        log = server.store.log("t")
        log.configure(segment_entries=10, local_retention_bytes=1)
        append(log, 55)
        view = functools.partial(timestone_tiering.view_bucket, bucket.url)
        with RemoteStore(FlightServer(server.address), view) as before:
            whole = before.log("t")
            planned, late_plan = whole.segment_bounds(), before.log("t")
            assert late_plan.start_offset == 0
            upload_store(server.store, bucket)
            log.apply_retention()
            assert log.local_start_offset > 20
            expected = [b"record %d" % number for number in range(55)]
            # Planned while all was on the disk.
            assert read_all(late_plan) == expected
        with RemoteStore(FlightServer(server.address)) as alone:
            assert alone.log("t").start_offset == 0, "the server fetches by itself"
        if not knows_history:
            log.attach_history(None)
        with RemoteStore(FlightServer(server.address), view) as remote:
            found = remote.log("t")
            assert (found.start_offset, found.segment_bounds()) == (0, planned)
            assert found.segment_bounds(5, 12) == [(5, 10), (10, 12)]
            assert found.segments_with(("devices/10",), 0, 50) == [(10, 20)]
            assert [(base, end) for base, end, _ in found.segment_sizes()] == planned
            assert read_all(found) == expected
            assert found.lost_offsets(0, 55) == []
            assert found.offset_at(0) == 0


def test_bucket_of_another_store_is_refused_when_the_server_has_a_history(tmp_path: Path) -> None:
    bucket, other = (open_bucket((tmp_path / name).as_uri()) for name in ("bucket", "other"))
    with flight_server(tmp_path) as server:
        log = server.store.log("t")
        log.configure(segment_entries=10, local_retention_bytes=1)
        append(log, 55)
        with StoreTier(server.store, TierConfig(url=bucket.url), bucket=bucket) as tier:
            wait_for(lambda: any(one.end >= 50 for one in tier.log_status()))
            log.apply_retention()
            assert log.start_offset == 0 < log.local_start_offset
            view = functools.partial(timestone_tiering.view_bucket, other.url)
            with (
                RemoteStore(FlightServer(server.address), view) as remote,
                pytest.raises(DataLoss, match="it is not the bucket that the nodes upload to"),
            ):
                remote.log("t").segment_bounds()
