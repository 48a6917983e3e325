"""A store with a real S3 server behind a proxy that loses, repeats, refuses, delays, cuts and changes answers.

After each fault, all that the newest manifest names is complete, nothing leaves the disk before, and readers get all
records or a clear error."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import checked_manifest
from tests.support.s3_proxy import S3Proxy, s3_proxy
from tests.support.s3_server import BUCKET, S3Server
from tests.support.waiting import wait_for
from tests.tiering.conftest import append
from timestone import HistoryUnavailable, LogConfig
from timestone.log import Log
from timestone_tiering.buckets.object_storage import ObjectStorage
from timestone_tiering.config import TierConfig
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.tier import StoreTier

pytestmark = pytest.mark.slow

FAULTS = ["lost", "repeated", "503", "slow", "truncated", "wrong etag", "507"]
CONFIG = LogConfig(segment_entries=10, local_retention_bytes=1)


@pytest.fixture
def proxy(s3_environment: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(s3_environment.port) as proxy:
        yield proxy


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timestone_tiering.uploading.uploader._RETRY_MOST_S", 0.2)


def manifest_of(log: Log, url: str) -> Manifest | None:
    """The newest manifest, read without the proxy, after all that it names was verified."""
    return checked_manifest(ObjectStorage(url), LogPlace(log.id, log.name, log.partition))


@pytest.mark.parametrize("fault", FAULTS)
def test_everything_arrives_and_is_read_whatever_happens_to_every_third_answer(
    proxy: S3Proxy, url: str, tmp_path: Path, fault: str
) -> None:
    proxy.choose = lambda number, method, path: (
        fault if number % 3 == 2 and concerns(fault, method, path) else None
    )
    with timestone.open(tmp_path / "data", tail_bytes=0, log=CONFIG) as store:
        log = store.log("telemetry")
        append(log, 55)
        with StoreTier(store, TierConfig(url=url, endpoint=proxy.endpoint)) as tier:

            def all_is_there() -> bool:
                end, kept_from = tier.log_status()[0].end if tier.log_status() else 0, log.local_start_offset
                assert kept_from <= end or kept_from == 0, "nothing goes before a manifest names it"
                return kept_from == 50

            wait_for(all_is_there, timeout_s=60)
            manifest = manifest_of(log, url)
            assert manifest is not None and (manifest.start, manifest.end) == (0, 50)
            assert read_again_and_again(log) == list(range(55))
            assert fault in proxy.met


def concerns(fault: str, method: str, path: str) -> bool:
    """Only answers with an object can be cut without its being noticed: others are XML."""
    return fault != "truncated" or (method == "GET" and "list-type" not in path)


def read_again_and_again(log: Log) -> list[int]:
    """The numbers of all records, by a reader that tries again after HistoryUnavailable and no other error."""
    found: list[int] = []
    reader = log.reader()
    while not reader.caught_up:
        try:
            found += [int(one.payload.split()[1]) for one in reader.read(max_records=7)]
        except HistoryUnavailable:
            continue
    return found


@pytest.mark.parametrize("fault", ["lost", "503"])
def test_no_single_call_of_an_upload_can_break_it(
    proxy: S3Proxy, url: str, tmp_path: Path, fault: str
) -> None:
    """All requests of one kind from the Nth on fail for a while, for each N: then the process ends, and the next one
    continues."""
    for first in (9, 14, 19, 24, 29):
        prefix = f"{url}/{first}"
        proxy.requests.clear()
        proxy.choose = lambda number, method, path: fault if number >= first else None  # noqa: B023
        with timestone.open(tmp_path / f"data-{first}", log=CONFIG) as store:
            log = store.log("telemetry")
            append(log, 35)
            with StoreTier(store, TierConfig(url=prefix, endpoint=proxy.endpoint)) as tier:
                wait_for(lambda: tier.status().error_count > 0, timeout_s=60)
                found = manifest_of(log, prefix)
                known = tier.log_status()[0].end if tier.log_status() else 0
                assert log.local_start_offset <= (found.end if found else 0)
                assert known <= (found.end if found else 0)
        proxy.choose = lambda number, method, path: None
        with timestone.open(tmp_path / f"data-{first}", log=CONFIG) as store:
            log = store.log("telemetry")
            log.roll()  # the close has left the last segment to this process
            with StoreTier(store, TierConfig(url=prefix, endpoint=proxy.endpoint)) as tier:
                wait_for(lambda: [one.end for one in tier.log_status()] == [35])
                assert [int(one.payload.split()[1]) for one in log] == list(range(35))
            manifest_of(log, prefix)


def test_a_second_store_on_a_prefix_is_refused_and_the_first_one_goes_on(
    proxy: S3Proxy, url: str, tmp_path: Path
) -> None:
    config = TierConfig(url=url, endpoint=proxy.endpoint)
    with (
        timestone.open(tmp_path / "one", log=CONFIG) as one,
        timestone.open(tmp_path / "other", log=CONFIG) as other,
        StoreTier(one, config) as tier,
    ):
        with pytest.raises(timestone.TimestoneError, match="another store uploads to this prefix"):
            StoreTier(other, config).start()
        assert other.tier is None
        append(one.log("telemetry"), 25)
        wait_for(lambda: [each.end for each in tier.log_status()] == [20])
