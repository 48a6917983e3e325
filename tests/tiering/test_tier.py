"""A store and its bucket together, as a Python program attaches one."""

from pathlib import Path

import pytest

import timestone
from tests.support.waiting import wait_for
from tests.tiering.conftest import SEGMENT_RECORDS, append, sealed_end
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import TieringError
from timestone_tiering.tier import StoreTier


def test_segments_are_uploaded_as_they_are_sealed(store: Store, log: Log, tmp_path: Path) -> None:
    config = TierConfig(url=f"file://{tmp_path}/bucket")
    with StoreTier(store, config) as tier:
        assert tier.url == config.url
        wait_for(lambda: [one.end for one in tier.log_status()] == [30])
        append(log, SEGMENT_RECORDS)
        wait_for(lambda: [one.end for one in tier.log_status()] == [sealed_end(log)] != [30])
    assert tier.status().state == "stopped"
    append(log, SEGMENT_RECORDS)  # sealing calls nothing that has ended


def test_the_next_process_uploads_what_the_last_one_sealed_at_its_end(tmp_path: Path) -> None:
    config = TierConfig(url=f"file://{tmp_path}/bucket")
    for number in range(3):
        with (
            timestone.open(tmp_path / "data", log=timestone.LogConfig(segment_entries=100)) as store,
            StoreTier(store, config) as tier,
        ):
            append(store.log("telemetry"), 10)
            wait_for(lambda: sum(one.end for one in tier.log_status()) == 10 * number)  # noqa: B023
            assert tier.status().generation == number + 1
            store.log("telemetry").roll()


def test_records_of_a_quiet_log_are_uploaded_when_they_are_old(tmp_path: Path) -> None:
    """Of a segment that grows when the upload begins, and of one that begins later. Nothing is appended afterwards."""
    config = timestone.LogConfig(segment_age_ms=50)
    with timestone.open(tmp_path / "data", log=config) as store:
        append(store.log("before"), 3)
        with StoreTier(store, TierConfig(url=f"file://{tmp_path}/bucket")) as tier:
            append(store.log("telemetry"), 3)
            wait_for(
                lambda: {one.log: one.end for one in tier.log_status()} == {"before-0": 3, "telemetry-0": 3}
            )


@pytest.mark.parametrize("url", ["", "ftp://x/y"])
def test_a_url_that_no_bucket_has_is_refused(url: str) -> None:
    with pytest.raises(TieringError, match="invalid URL"):
        TierConfig(url=url)


def test_a_closed_store_leaves_the_tier_without_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = timestone.open(tmp_path / "data")
    tier = StoreTier(store, TierConfig(url=f"file://{tmp_path}/bucket"))
    tier.start()
    store.close()
    tier.look()
    tier.close()
    assert "Traceback" not in caplog.text
