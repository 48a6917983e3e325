"""Retention of the disk apart from that of the bucket, and reads of what only the bucket has."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.buckets import FaultyBucket, checked_manifest
from tests.support.expiring_store import HOUR_MS, ExpiringStore, bases, expiring_store
from tests.support.waiting import wait_for
from timestone import HistoryUnavailable, Log, OffsetOutOfRange, Pin
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import BucketUnavailable
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.tier import StoreTier


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ExpiringStore]:
    with expiring_store(tmp_path / "data") as place:
        yield place


@pytest.fixture
def faulty(bucket: FolderBucket) -> FaultyBucket:
    return FaultyBucket(bucket)


@contextmanager
def tiered(place: ExpiringStore, bucket: FaultyBucket) -> Iterator[StoreTier]:
    with StoreTier(place.store, TierConfig(url=bucket.url), bucket=bucket) as tier:
        yield tier


def wait_for_end(tier: StoreTier, end: int) -> None:
    wait_for(lambda: [one.end for one in tier.log_status()] == [end] and tier.status().state == "idle")


def manifest_of(log: Log, bucket: FolderBucket) -> Manifest:
    found = checked_manifest(bucket, LogPlace(log.id, log.name, log.partition))
    assert found is not None
    return found


def local_files(log: Log) -> set[str]:
    return {name for name in os.listdir(log.folder) if name.endswith((".segment", ".index"))}


def filled(place: ExpiringStore, count: int = 22, **settings: int) -> Log:
    """Five sealed segments of four records, one an hour, and one that grows."""
    log = place.log(**settings)
    for number in range(count):
        log.append(b"%d" % number, topic=f"devices/{number // 4}")
        place.clock.advance(HOUR_MS // 4)
        place.store.sealer.settle()
        log.retention.mark()
    place.store.open_segments.clear()
    return log


def test_local_segments_go_by_age_and_by_size_once_the_bucket_has_them(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place, local_retention_ms=2 * HOUR_MS + 1)
    assert log.apply_retention() == 0, "there is no tier yet"
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        assert log.apply_retention() == 3
        assert (log.start_offset, log.local_start_offset, log.end_offset) == (0, 12, 22)
        log.configure(local_retention_ms=0, local_retention_bytes=1)
        assert log.apply_retention() == 2
        assert log.local_start_offset == 20
        assert bases(log) == [0, 4, 8, 12, 16, 20]


@pytest.mark.slow
def test_nothing_goes_that_the_bucket_has_not_got(place: ExpiringStore, faulty: FaultyBucket) -> None:
    log = filled(place, local_retention_bytes=1)
    faulty.fail_at, faulty.stays_away = 1, True
    with tiered(place, faulty) as tier:
        wait_for(lambda: tier.status().error_count > 0)
        assert log.apply_retention() == 0
        faulty.fail_at = len(faulty.calls) + 40  # within the upload
        tier.look()
        wait_for(lambda: tier.log_status() and 0 < tier.log_status()[0].end < 20)
        wait_for(lambda: tier.status().state == "waiting")
        end = tier.log_status()[0].end
        assert log.apply_retention() == end // 4
        assert log.local_start_offset == end


@pytest.mark.slow
def test_a_manifest_of_an_earlier_process_lets_nothing_go_before_it_is_found_again(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
    log = place.reopen()
    log.configure(local_retention_bytes=1)
    faulty.fail_at, faulty.stays_away = len(faulty.calls), True
    with tiered(place, faulty) as tier:
        assert log.history is not None and log.history.end == 20
        assert log.apply_retention() == 0
        faulty.stays_away = False
        wait_for_end(tier, 22)
        assert log.apply_retention() == 5


def test_everything_is_read_as_if_it_were_on_the_disk(place: ExpiringStore, faulty: FaultyBucket) -> None:
    log = filled(place, local_retention_bytes=1)
    times = [int(log.record(offset).timestamp_us) for offset in range(22)]
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
        log.tail_lost()
        assert [int(one.payload) for one in log] == list(range(22))
        assert [one.offset for one in log.reader(topics=["devices/1", "devices/5"])] == [4, 5, 6, 7, 20, 21]
        assert [log.record(offset).payload for offset in (0, 19, 20)] == [b"0", b"19", b"20"]
        assert [log.offset_at(time) for time in times] == list(range(22))
        assert log.offset_at(datetime.fromtimestamp(times[7] / 1e6, UTC)) == 7
        assert len(log) == 22
        assert log.segments_with(["devices/1"], 0, 22) == [(4, 8), (20, 22)]
        with log.reader(3) as reader:
            assert reader.read(max_records=1).offsets.tolist() == [3]
        assert tier.fetch_status().fetched_segments == 5
        with pytest.raises(OffsetOutOfRange):
            log.read(23)


def test_a_bucket_that_is_away_is_an_error_of_reads_below_the_local_start_only(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place, local_retention_bytes=1)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
        log.tail_lost()
        faulty.fail_at, faulty.stays_away = len(faulty.calls), True
        with pytest.raises(HistoryUnavailable, match="offsets 8 to 11 are in a bucket") as caught:
            log.read(9)
        assert (caught.value.first, caught.value.end) == (8, 12)
        with pytest.raises(HistoryUnavailable):
            next(iter(log))
        assert log.read(20).offsets.tolist() == [20, 21]
        assert log.append(b"22") == 22
        faulty.stays_away = False
        assert log.read(9).offsets[0] == 9


def test_a_start_without_the_bucket_knows_where_the_log_begins(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place, local_retention_bytes=1)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
        log.tail_lost()
        log.read(0, max_records=4)
    log = place.reopen()
    assert log.start_offset == 20
    faulty.fail_at, faulty.stays_away = len(faulty.calls), True
    with tiered(place, faulty) as tier:
        assert tier.status().state == "waiting"
        assert log.start_offset == 0
        assert log.read(1, max_records=1).offsets.tolist() == [1], "the cache has it"
        with pytest.raises(HistoryUnavailable):
            log.read(4, max_records=4)


def test_retention_of_the_whole_log_shortens_the_manifest(
    place: ExpiringStore, faulty: FaultyBucket, bucket: FolderBucket
) -> None:
    log = filled(place, local_retention_bytes=1, retention_ms=3 * HOUR_MS + 1)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
        assert (log.start_offset, log.local_start_offset) == (8, 20)
        wait_for(lambda: tier.log_status()[0].start == 8)
        with pytest.raises(OffsetOutOfRange):
            log.read(7)
        manifest = manifest_of(log, bucket)
        assert (manifest.start, manifest.end, len(manifest.segments)) == (8, 20, 3)
        place.clock.advance(10 * HOUR_MS)
        # The uploader may first seal what is by now old in the quiet log: the next pass deletes that, too, in the
        # bucket or before it is there.
        wait_for(lambda: log.apply_retention() >= 0 and manifest_of(log, bucket).segment_count == 0)
        assert log.start_offset == log.local_start_offset and log.start_offset in (20, 22)


def test_the_age_of_what_the_bucket_has_is_known_after_a_restart(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place, local_retention_bytes=1, retention_ms=10 * HOUR_MS)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        assert log.apply_retention() == 5
    log = place.reopen()
    place.clock.advance(6 * HOUR_MS)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 22)
        log.apply_retention()
        assert log.start_offset == 4


def test_a_pin_holds_records_in_the_bucket_and_not_on_the_disk(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place, local_retention_bytes=1)
    pin = Pin(max_age_ms=1000 * HOUR_MS)
    with log.reader(name="slow", pin=pin) as reader, tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
        log.configure(retention_bytes=1)
        log.apply_retention()
        assert (log.start_offset, log.local_start_offset) == (0, 20)
        reader.seek(9)
        reader.commit()
        log.apply_retention()
        assert log.start_offset == 8


@pytest.mark.slow
def test_records_past_the_whole_retention_go_from_the_disk_while_the_bucket_is_away(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    """They would be deleted in the bucket as well: a disk does not fill for them."""
    log = filled(place, retention_ms=2 * HOUR_MS + 1)
    faulty.fail_at, faulty.stays_away, faulty.error = 1, True, BucketUnavailable
    with tiered(place, faulty) as tier:
        wait_for(lambda: tier.status().error_count > 0)
        assert log.apply_retention() == 3
        assert log.start_offset == 12
        faulty.stays_away = False
        wait_for_end(tier, 20)
        assert tier.log_status()[0].start == 12


def test_an_emptied_bucket_is_not_taken_for_an_empty_history(
    place: ExpiringStore, faulty: FaultyBucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(place, local_retention_bytes=1)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
    log = place.reopen()
    for owner in (tmp_path / "bucket").iterdir():
        if owner.name != "owners":
            shutil.rmtree(owner)
    with caplog.at_level(logging.ERROR), tiered(place, faulty) as tier:
        wait_for(lambda: tier.log_status() and tier.log_status()[0].error)
        assert "it was emptied, or is another one" in caplog.text
        assert log.start_offset == 0
        place.fill(log, 8)
        assert log.apply_retention() == 0


def test_a_compacted_log_keeps_its_local_segments(place: ExpiringStore, faulty: FaultyBucket) -> None:
    log = filled(place)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.configure(compact=True, local_retention_bytes=1)
        assert log.apply_retention() == 0


def test_a_log_that_is_deleted_is_not_read_from_the_bucket(
    place: ExpiringStore, faulty: FaultyBucket
) -> None:
    log = filled(place, local_retention_bytes=1)
    with tiered(place, faulty) as tier:
        wait_for_end(tier, 20)
        log.apply_retention()
        place.store.delete_log("a")
        assert log.start_offset == log.end_offset == 22
        assert len(place.log()) == 0
