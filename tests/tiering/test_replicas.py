"""Replicas of a log and their bucket: the one that leads uploads, the others read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket
from tests.support.waiting import wait_for
from tests.tiering.conftest import append as append_plain
from tests.tiering.conftest import uploader_of
from tests.timestone.replication.replicas import ship, submitted
from timestone import LogConfig
from timestone.config import StoreConfig
from timestone.disk.files import Files
from timestone.errors import HistoryUnavailable
from timestone.readable import ReadableLog
from timestone.repair.inspection import inspect_store
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.node.held_shards import make_replica_folder
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import HistoryDiverged, LeaderChanged, NoHistory
from timestone_tiering.objects.history import log_histories
from timestone_tiering.objects.layout import Version
from timestone_tiering.operations.restore import restore_store
from timestone_tiering.operations.status import bucket_status, urls_of_store
from timestone_tiering.reading.local_view import noted_bucket, remote_history
from timestone_tiering.tier import StoreTier
from timestone_tiering.uploading import log_uploader
from timestone_tiering.uploading.log_uploader import LogUploader
from timestone_tiering.uploading.ownership import Leadership
from timestone_tiering.view import view_bucket

LOG_ID = 0x1234
CONFIG = StoreConfig(min_free_bytes=0, log=LogConfig(segment_entries=10, segment_age_ms=3_600_000))


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers look for what was uploaded at each turn."""
    monkeypatch.setattr(log_uploader, "FOLLOW_S", 0.0)
    monkeypatch.setattr("timestone_tiering.uploading.uploader.FOLLOW_S", 0.05)


@contextmanager
def replica(path: Path, bucket: Path, way: Bucket | None = None) -> Iterator[tuple[ReplicatedLog, StoreTier]]:
    """Open the replica of a log with its tier, as a node does. way: to the bucket, if it is not the usual one."""
    with Store(path, CONFIG, log_type=ReplicatedLog) as store:
        if ("telemetry", 0) not in store.log_names():
            make_replica_folder(store, "telemetry", 0, LOG_ID)
        log = store.log("telemetry")
        assert isinstance(log, ReplicatedLog)
        state = store.log("state")
        assert isinstance(state, ReplicatedLog)
        with StoreTier(
            store,
            TierConfig(url=f"file://{bucket}"),
            bucket=way,
            is_replicated=True,
            left_out=["state"],
        ) as tier:
            yield log, tier


@contextmanager
def led_alone(path: Path, count: int) -> Iterator[tuple[Store, ReplicatedLog]]:
    """Open a replica without a tier that leads generation 1, with so many records of its own, all shown."""
    with Store(path, CONFIG, log_type=ReplicatedLog) as store:
        make_replica_folder(store, "telemetry", 0, LOG_ID)
        log = store.log("telemetry")
        assert isinstance(log, ReplicatedLog)
        log.lead(1)
        for number in range(count):
            submitted(log, b"%d" % number)
        log.seal_rolled()
        log.show(count)
        yield store, log


def append(log: ReplicatedLog, other: ReplicatedLog, generation: int, count: int) -> None:
    """Append records one by one, ship and show them."""
    for _ in range(count):
        submitted(log, b"record %d" % log.written_offset, topic=f"t/{log.written_offset % 7}")
    ship(log, other, generation)
    for one in (log, other):
        one.seal_rolled()
        one.show(log.written_offset)


def uploaded(tier: StoreTier) -> int:
    return max((one.end for one in tier.log_status()), default=0)


def test_inspection_does_not_wait_for_the_upload_of_what_nodes_write_for_themselves(tmp_path: Path) -> None:
    with replica(tmp_path / "a", tmp_path / "bucket") as (log, tier):
        log.lead(1)
        for number in range(25):
            submitted(log, b"%d" % number)
            log.seal_rolled()
        log.show(25)
        wait_for(lambda: uploaded(tier) == 20)
        found = inspect_store(tmp_path / "a", bucket=noted_bucket(tmp_path / "a", Files()))
        assert {one.log: one.uploaded_offset for one in found.logs} == {"state": None, "telemetry": 20}


def test_the_replica_that_leads_uploads_and_its_successor_continues(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    with replica(tmp_path / "a", bucket) as (one, tier_a), replica(tmp_path / "b", bucket) as (two, tier_b):
        one.lead(1)
        append(one, two, 1, 25)
        one.roll()  # a boundary that only the settings of the leader give
        append(one, two, 1, 18)
        wait_for(lambda: uploaded(tier_a) == 35)
        wait_for(lambda: uploaded(tier_b) == 35)
        assert tier_b.status().uploaded_segments == 0
        one.follow()
        two.lead(2)
        append(two, one, 2, 30)
        wait_for(lambda: uploaded(tier_b) == 63)
        wait_for(lambda: uploaded(tier_a) == 63)
        two.configure(local_retention_bytes=1)
        two.expect_upkeep()
        wait_for(lambda: two.local_start_offset == 63)
        assert two.start_offset == 0
        one.expire(two.local_start_offset)
        wait_for(lambda: one.local_start_offset == 63)
        for log in (one, two):
            assert len(log) == 73
            assert [bytes(record.payload) for record in log] == [b"record %d" % n for n in range(73)]
        for name in "ab":
            with timestone.view(tmp_path / name) as seen, remote_history(seen):
                assert len(list(seen.log("telemetry"))) == 73
                assert urls_of_store(seen) == [f"file://{bucket}"]
                status = bucket_status(FolderBucket(bucket), seen)
                assert [(one.log, one.end_offset) for one in status.logs] == [("telemetry", 63)]
        two.follow()
        one.lead(3)  # what it deleted as a follower is not deleted from the bucket
        append(one, two, 3, 20)
        wait_for(lambda: uploaded(tier_a) == 83)
        assert one.start_offset == 0
    with view_bucket(f"file://{bucket}") as view:
        assert view.log_names() == [("telemetry", 0)]
        assert [bytes(one.payload) for one in view.log("telemetry")] == [b"record %d" % n for n in range(83)]


def test_a_successor_continues_in_the_middle_of_one_of_its_segments(tmp_path: Path) -> None:
    """As after a restart of one replica and a cut of the other: neither has the boundaries of the other one."""
    bucket = FolderBucket(tmp_path / "bucket")

    def uploader(log: ReplicatedLog, store: Store) -> LogUploader:
        return LogUploader(log, bucket, Leadership(log), store.files, store.now_us, lambda size: None)

    with (
        Store(tmp_path / "a", CONFIG, log_type=ReplicatedLog) as first,
        Store(tmp_path / "b", CONFIG, log_type=ReplicatedLog) as second,
    ):
        for store in (first, second):
            make_replica_folder(store, "telemetry", 0, LOG_ID)
        one, two = first.log("telemetry"), second.log("telemetry")
        assert isinstance(one, ReplicatedLog) and isinstance(two, ReplicatedLog)
        one.lead(1)
        append(one, two, 1, 3)
        two.roll()
        append(one, two, 1, 4)
        one.follow()
        two.lead(2)
        append(two, one, 2, 1)
        assert uploader(two, second).step() == 0.0
        assert log_histories(bucket)[0].manifest.end == 3, "no segment of the other one ends at 3"
        two.follow()
        one.lead(3)
        append(one, two, 3, 1)
        of_one = uploader(one, first)
        while of_one.step() is not None:
            pass
        history = log_histories(bucket)[0].manifest
        assert [(each.base, each.end) for each in history.segments] == [(0, 3), (3, 7), (7, 8)]
        assert [(each.epoch or 0) >> 32 for each in history.segments] == [1, 1, 2]
        one.configure(local_retention_bytes=1)
    with view_bucket(f"file://{tmp_path / 'bucket'}") as view:
        log = view.log("telemetry")
        assert [bytes(one.payload) for one in log] == [b"record %d" % n for n in range(8)]
        assert [one.topic for one in log] == [f"t/{n % 7}" for n in range(8)]
    restore_store(bucket, tmp_path / "restored")
    with timestone.open(tmp_path / "restored") as restored:
        assert [bytes(one.payload) for one in restored.log("telemetry")] == [
            b"record %d" % n for n in range(8)
        ]


def test_a_restored_log_of_replicas_is_a_log_of_its_own(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    with replica(tmp_path / "a", bucket) as (one, tier), replica(tmp_path / "b", bucket) as (two, _):
        one.lead(5)
        append(one, two, 5, 45)
        wait_for(lambda: uploaded(tier) == 40)
    restore_store(FolderBucket(bucket), tmp_path / "restored")
    with timestone.open(tmp_path / "restored") as store:
        log = store.log("telemetry")
        assert [bytes(record.payload) for record in log] == [b"record %d" % n for n in range(40)]
        assert log.append(b"next") >= 40


def test_a_leader_that_is_replaced_during_an_upload_commits_nothing(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path / "bucket")
    with led_alone(tmp_path / "a", 25) as (store, log):

        def pace(size_bytes: int) -> None:
            if log.led_generation == 1:
                log.follow()

        uploader = LogUploader(log, bucket, Leadership(log), store.files, store.now_us, pace)
        with pytest.raises(LeaderChanged):
            uploader.step()
        with pytest.raises(NoHistory):
            log_histories(bucket)
        assert uploader.step() is None, "it follows"
        log.lead(2)
        submitted(log, b"of the next generation")
        log.seal_rolled()
        log.show(26)
        assert uploader.step() == 0.0
        assert log_histories(bucket)[0].manifest.version == Version(2, 0)


def test_a_leader_that_loses_its_files_during_an_upload_follows_soon(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path / "bucket")
    with led_alone(tmp_path / "a", 15) as (store, log):

        def pace(size_bytes: int) -> None:
            if log.led_generation == 1:
                log.follow()
                log.reset(20)

        uploader = LogUploader(log, bucket, Leadership(log), store.files, store.now_us, pace)
        with pytest.raises(LeaderChanged, match="No such file"):
            uploader.step()
        assert uploader.step() is None, "it follows"


@pytest.mark.slow
def test_a_replica_that_begins_again_has_no_gap_before_the_bucket_was_asked(tmp_path: Path) -> None:
    """Readers that get OffsetOutOfRange take records for deleted, and skip them."""
    bucket, way = tmp_path / "bucket", FaultyBucket(FolderBucket(tmp_path / "bucket"))

    def is_unavailable(log: ReadableLog) -> bool:
        with pytest.raises(HistoryUnavailable, match=r"offsets 20 to 39 .* not known yet"):
            log.read(25)
        with pytest.raises(HistoryUnavailable):
            log.segment_sizes(30)
        reader = log.reader("earliest")
        return (reader.offset, log.local_start_offset, log.end_offset) == (0, 40, 45)

    with replica(tmp_path / "a", bucket) as (one, tier_a):
        one.lead(1)
        with replica(tmp_path / "b", bucket, way) as (two, tier_b):
            append(one, two, 1, 25)
            wait_for(lambda: uploaded(tier_a) == uploaded(tier_b) == 20)
            for number in range(25, 45):
                submitted(one, b"record %d" % number)
            one.seal_rolled()
            one.show(45)
            one.configure(local_retention_bytes=1)
            one.expect_upkeep()
            wait_for(lambda: one.local_start_offset == 40)
            way.fail_at, way.stays_away = len(way.calls), True
            two.reset(40)
            ship(one, two, 1)
            two.show(45)
            assert is_unavailable(two)
            wait_for(lambda: tier_b.status().error_count > 0)
            assert is_unavailable(two)
            with timestone.view(tmp_path / "b") as seen, remote_history(seen, bucket=way):
                assert is_unavailable(seen.log("telemetry"))
        with timestone.view(tmp_path / "b") as seen, remote_history(seen):  # it asks the bucket itself
            assert [bytes(each.payload) for each in seen.log("telemetry")] == [
                b"record %d" % n for n in range(45)
            ]
        with replica(tmp_path / "b", bucket, way) as (two, tier_b):
            two.show(45)
            assert is_unavailable(two)
            way.fail_at = -1
            wait_for(lambda: two.history is not None and two.history.confirmed)
            assert [bytes(each.payload) for each in two] == [b"record %d" % n for n in range(45)]


def test_a_store_of_its_own_does_not_continue_what_a_cluster_has_uploaded(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path / "bucket")
    with (
        replica(tmp_path / "a", tmp_path / "bucket") as (one, tier),
        replica(tmp_path / "b", tmp_path / "bucket") as (
            two,
            _,
        ),
    ):
        one.lead(5)
        append(one, two, 5, 25)
        wait_for(lambda: uploaded(tier) == 20)
    restore_store(bucket, tmp_path / "restored")
    with timestone.open(tmp_path / "restored", log=LogConfig(segment_entries=10)) as store:
        uploader = uploader_of(store, store.log("telemetry"), bucket)
        append_plain(store.log("telemetry"), 11)
        with pytest.raises(HistoryDiverged, match="a cluster has uploaded it"):
            uploader.step()
