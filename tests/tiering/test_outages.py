"""A store whose real S3 server is killed, hangs, or refuses its credentials or its clock, and is well again later.

Appends and reads of what is on the disk continue; the rest is a clear error in a bounded time, and afterwards all is in
the bucket and can be read, without a restart of the store."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import checked_manifest
from tests.support.s3_proxy import S3Proxy, s3_proxy
from tests.support.s3_server import (
    BUCKET,
    KEY,
    OTHER_KEY,
    OTHER_SECRET,
    SECRET,
    S3Server,
    s3_server,
)
from tests.support.waiting import wait_for
from tests.tiering.conftest import append
from timestone import HistoryUnavailable, LogConfig
from timestone.log import Log
from timestone.repair.inspection import inspect_store
from timestone.repair.inspection_report import StoreReport
from timestone.store import Store
from timestone_tiering.buckets.object_storage import ObjectStorage
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import BucketRefused, UnfitBucket
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.reading.local_view import noted_bucket
from timestone_tiering.tier import StoreTier

pytestmark = pytest.mark.slow
BOUNDED_S = 30.0
"""Half of the time that a call of the client may take: nothing waits for it that must not."""


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timestone_tiering.uploading.uploader._RETRY_MOST_S", 0.5)


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that only this test disturbs."""
    with s3_server(tmp_path / "s3") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def proxy(s3_environment: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(s3_environment.port) as proxy:
        yield proxy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    config = LogConfig(segment_entries=10, local_retention_bytes=1)
    with timestone.open(tmp_path / "data", tail_bytes=0, log=config) as opened:
        yield opened


def wait_for_upload(tier: StoreTier, log: Log) -> None:
    """Wait until the bucket has all sealed segments, and the disk only the growing one."""
    wait_for(lambda: log.local_start_offset == log.growing_base, timeout_s=60)
    assert [one.end for one in tier.log_status()] == [log.growing_base]


def numbers(log: Log) -> list[int]:
    return [int(one.payload.split()[1]) for one in log]


def reads_everything(log: Log, count: int) -> None:
    """Wait until every record can be read, through HistoryUnavailable and no other error."""

    def readable() -> bool:
        try:
            return numbers(log) == list(range(count))
        except HistoryUnavailable:
            return False

    wait_for(readable, timeout_s=60)


def test_a_server_that_is_killed_and_started_again_gets_everything(
    own_server: S3Server, store: Store, url: str
) -> None:
    log = store.log("telemetry")
    append(log, 25)
    with StoreTier(store, TierConfig(url=url, cache_bytes=0)) as tier:
        for end in (25, 55, 85):
            wait_for_upload(tier, log)
            errors = tier.status().error_count
            own_server.stop()
            append(log, 30)
            with pytest.raises(HistoryUnavailable, match="offsets 0 to 9"):
                log.read(0)
            assert log.read(end, max_records=1)[0].payload == b"record %d" % end
            wait_for(lambda: tier.status().error_count > errors)  # noqa: B023
            own_server.start()
        wait_for_upload(tier, log)
        reads_everything(log, 115)
        manifest = checked_manifest(ObjectStorage(url), LogPlace(log.id, log.name, log.partition))
        assert manifest is not None and (manifest.start, manifest.end) == (0, log.growing_base)


def test_a_server_that_hangs_holds_up_neither_start_nor_stop_nor_reads(
    own_server: S3Server, store: Store, url: str
) -> None:
    log, config = store.log("telemetry"), TierConfig(url=url, cache_bytes=0)
    append(log, 25)
    with StoreTier(store, config) as tier:
        wait_for_upload(tier, log)
        own_server.pause()
        try:
            append(log, 10)
            began_s = time.monotonic()
            with pytest.raises(HistoryUnavailable, match="offsets 0 to 9"):
                log.read(0)
            assert log.read(25, max_records=1)[0].payload == b"record 25"
            tier.close()
            again = StoreTier(store, config)
            again.start()
            again.close()
            assert time.monotonic() < began_s + BOUNDED_S
        finally:
            own_server.resume()
    with StoreTier(store, config) as tier:
        wait_for_upload(tier, log)
        reads_everything(log, 35)


def test_credentials_that_expire_are_taken_again_from_their_file(
    proxy: S3Proxy, store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renew(key: str, secret: str) -> None:
        (tmp_path / ".aws").mkdir(exist_ok=True)
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
        (tmp_path / ".aws" / "credentials").write_text(text)

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    renew(KEY, SECRET)
    log = store.log("telemetry")
    append(log, 25)
    config = TierConfig(url=url, endpoint=proxy.endpoint, cache_bytes=0)
    with StoreTier(store, config) as tier:
        wait_for_upload(tier, log)
        proxy.expired_key = KEY
        append(log, 30)
        with pytest.raises(HistoryUnavailable, match="ExpiredToken"):
            log.read(0)
        wait_for(lambda: tier.status().state == "waiting")
        assert "ExpiredToken" in (tier.status().last_error or "")
        renew(OTHER_KEY, OTHER_SECRET)
        wait_for_upload(tier, log)
        reads_everything(log, 55)
    proxy.expired_key = OTHER_KEY
    with pytest.raises(BucketRefused, match="ExpiredToken") as caught:
        StoreTier(store, config).start()
    assert OTHER_SECRET not in str(caught.value)


def test_a_clock_that_is_wrong_is_refused_at_start_and_waited_for_later(
    proxy: S3Proxy, store: Store, url: str
) -> None:
    log, config = store.log("telemetry"), TierConfig(url=url, endpoint=proxy.endpoint)
    proxy.choose = lambda number, method, path: "skewed"
    with pytest.raises(BucketRefused, match="RequestTimeTooSkewed"):
        StoreTier(store, config).start()
    assert store.tier is None
    proxy.choose = lambda number, method, path: None
    append(log, 25)
    with StoreTier(store, config) as tier:
        wait_for_upload(tier, log)
        proxy.choose = lambda number, method, path: "skewed"
        append(log, 10)
        wait_for(lambda: "TooSkewed" in (tier.status().last_error or ""))
        proxy.choose = lambda number, method, path: None
        wait_for_upload(tier, log)


def test_a_server_that_ignores_create_only_is_refused_at_start(
    proxy: S3Proxy, store: Store, url: str
) -> None:
    proxy.choose = lambda number, method, path: "overwrites"
    with pytest.raises(UnfitBucket, match="honours If-None-Match"):
        StoreTier(store, TierConfig(url=url, endpoint=proxy.endpoint)).start()
    assert store.tier is None
    assert list(ObjectStorage(url).objects("owners/")) == []


def test_a_store_notes_what_waits_and_the_last_error_for_inspection(
    own_server: S3Server, store: Store, url: str
) -> None:
    """Also when the bucket is away from the start of the server on, before it could be claimed."""
    log = store.log("telemetry")
    append(log, 31)
    with StoreTier(store, TierConfig(url=url)) as tier:
        wait_for_upload(tier, log)
    own_server.stop()
    append(log, 20)
    with StoreTier(store, TierConfig(url=url)) as tier:
        wait_for(lambda: tier.status().state == "waiting")
        (status,) = tier.log_status()
        assert (status.end, status.waiting_segments) == (30, 2)
        wait_for(lambda: inspected(store).bucket_error != "")
        report = inspected(store)
        assert report.bucket == url and url in report.bucket_error and report.exit_code == 0
        (found,) = report.logs
        assert (found.start_offset, found.uploaded_offset, found.waiting_segments) == (0, 30, 2)
        assert found.waiting_bytes == status.waiting_bytes > 0
        own_server.start()
        wait_for(lambda: inspected(store).logs[0].uploaded_offset == log.growing_base, timeout_s=60)
        wait_for(lambda: inspected(store).bucket_error == "")
    assert inspected(store).logs[0].waiting_segments == 0


def inspected(store: Store) -> StoreReport:
    return inspect_store(store.path, bucket=noted_bucket(store.path, store.files))
