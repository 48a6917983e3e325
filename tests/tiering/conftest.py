"""What the tests of tiering share: a store with sealed segments, and a folder as a bucket."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket, upload_store
from tests.support.s3_server import S3Server, s3_server
from tests.support.waiting import wait_for_seals
from timestone import LogConfig
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.objects.history import LogHistory, log_histories
from timestone_tiering.objects.manifest import Manifest, StoredObject
from timestone_tiering.uploading.log_uploader import LogUploader
from timestone_tiering.uploading.ownership import Ownership

SEGMENT_RECORDS = 10


@pytest.fixture
def bucket(tmp_path: Path) -> FolderBucket:
    return FolderBucket(tmp_path / "bucket")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(
        tmp_path / "data", ack="written", log=LogConfig(segment_entries=SEGMENT_RECORDS)
    ) as opened:
        yield opened


@pytest.fixture
def log(store: Store) -> Log:
    """Three sealed segments and one that grows."""
    log = store.log("telemetry")
    append(log, 3 * SEGMENT_RECORDS + 1)
    return log


def append(log: Log, count: int) -> None:
    """Append so many records, a batch for each segment, and have all full segments sealed."""
    first = log.end_offset
    for start in range(first, first + count, SEGMENT_RECORDS):
        offsets = range(start, min(start + SEGMENT_RECORDS, first + count))
        log.append_many([b"record %d" % offset for offset in offsets], topic=f"devices/{start}")
    wait_for_seals(log)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests; each takes a prefix of its own."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """The server as the environment names it, and no profile of this machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3


def sealed_end(log: Log) -> int:
    """Where what can be uploaded ends."""
    return log.segment_list.sealed()[-1].end_offset


def uploader_of(store: Store, log: Log, bucket: Bucket) -> LogUploader:
    ownership = Ownership(bucket, store.documents, store.now_us)
    ownership.claim()
    return LogUploader(log, bucket, ownership, store.files, store.now_us, lambda size: None)


def upload_all(uploader: LogUploader) -> None:
    while uploader.step() == 0.0:
        pass


@pytest.fixture
def stored(store: Store, log: Log, bucket: FolderBucket) -> Manifest:
    """The three sealed segments of the log in the bucket."""
    uploader = uploader_of(store, log, bucket)
    upload_all(uploader)
    assert uploader.manifest is not None
    return uploader.manifest


@pytest.fixture
def faulty(bucket: FolderBucket) -> FaultyBucket:
    return FaultyBucket(bucket)


@pytest.fixture
def uploaded(store: Store, log: Log, bucket: FolderBucket) -> FolderBucket:
    """The bucket with all sealed segments of `log`: the offsets [0, 30)."""
    upload_store(store, bucket)
    return bucket


def only_history(bucket: Bucket) -> LogHistory:
    """The one log of a bucket."""
    (history,) = log_histories(bucket)
    return history


def damage(bucket: FolderBucket, stored: StoredObject, history: LogHistory, position: int) -> Path:
    """Flip a bit of an object."""
    path = Path(bucket.url.removeprefix("file://"), history.objects.name_of(stored))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return path
