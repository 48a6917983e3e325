"""Views of a store whose older segments only its bucket has, as `timestone read` opens them."""

import json
import os
import shutil
from pathlib import Path

import pytest

import timestone
from tests.support.waiting import wait_for
from tests.tiering.conftest import append
from timestone import HistoryUnavailable, LogConfig
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import DamagedObject
from timestone_tiering.reading.local_view import remote_history
from timestone_tiering.tier import StoreTier


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """A closed store with 55 records, of which it has the last five on its disk."""
    config = LogConfig(segment_entries=10, local_retention_bytes=1)
    with timestone.open(tmp_path / "data", log=config, delete_delay_ms=0) as store:
        log = store.log("telemetry")
        with StoreTier(store, TierConfig(url=(tmp_path / "bucket").as_uri())) as tier:
            append(log, 55)
            wait_for(lambda: [one.end for one in tier.log_status()] == [50])
            wait_for(lambda: log.local_start_offset == 50)
    return tmp_path / "data"


def test_a_view_reads_what_only_the_bucket_has(tiered: Path) -> None:
    with timestone.view(tiered) as view, remote_history(view):
        log = view.log("telemetry")
        assert (log.start_offset, log.local_start_offset, log.end_offset) == (0, 50, 55)
        assert [int(one.payload.split()[1]) for one in log] == list(range(55))
        assert log.offset_at(int(log.record(33).timestamp_us)) <= 33
        assert [one.offset for one in log.reader(topics="devices/20")] == list(range(20, 30))
    with timestone.view(tiered) as view:
        assert view.log("telemetry").start_offset == 50


def test_a_view_leaves_nothing_behind_and_writes_nothing_to_the_store(tiered: Path) -> None:
    before = sorted(path for path in tiered.rglob("*"))
    with timestone.view(tiered) as view, remote_history(view):
        view.log("telemetry").read(0)
    assert sorted(path for path in tiered.rglob("*")) == before


def test_a_view_follows_the_owner_while_segments_leave_its_disk(tmp_path: Path) -> None:
    config = LogConfig(segment_entries=10, local_retention_bytes=1)
    with timestone.open(tmp_path / "data", log=config, delete_delay_ms=0) as store:
        log = store.log("telemetry")
        append(log, 25)
        (tmp_path / "data" / "tier").mkdir()
        with (
            timestone.view(tmp_path / "data") as view,
            StoreTier(store, TierConfig(url=(tmp_path / "bucket").as_uri())),
            remote_history(view),
        ):
            seen = view.log("telemetry")
            assert seen.start_offset == 0
            append(log, 25)
            wait_for(lambda: log.local_start_offset >= 30)
            assert seen.refresh() == 50
            assert (seen.start_offset, seen.local_start_offset) == (0, log.local_start_offset)
            assert [one.offset for one in seen] == list(range(50))


def test_a_bucket_that_is_gone_is_an_error_of_reads_below_the_local_start(
    tiered: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "bucket")
    with timestone.view(tiered) as view, remote_history(view):
        log = view.log("telemetry")
        with pytest.raises(HistoryUnavailable, match="offsets 0 to 9"):
            log.read(0)
        assert len(log.read(50)) == 5


def test_a_view_of_a_store_without_a_bucket_is_as_before(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("telemetry").append(b"one")
    with timestone.view(tmp_path / "data") as view, remote_history(view):
        assert view.log("telemetry").history is None
    assert "tier" not in os.listdir(tmp_path / "data")


def test_a_note_of_the_bucket_that_cannot_be_read_is_named(tiered: Path) -> None:
    (tiered / "tier" / "source.json").write_text(json.dumps({"url": "ftp://elsewhere"}))
    with timestone.view(tiered) as view, pytest.raises(Exception, match="invalid URL"), remote_history(view):
        pass
    for damaged in ("{", json.dumps({"url": "s3://bucket/plant", "left_out": 1})):
        (tiered / "tier" / "source.json").write_text(damaged)
        with (
            timestone.view(tiered) as view,
            pytest.raises(DamagedObject, match=r"source\.json"),
            remote_history(view),
        ):
            pass
