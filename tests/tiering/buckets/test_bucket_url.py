"""URLs of buckets: which are taken, and what is said of the others."""

import sys
from pathlib import Path

import pytest

from timestone_tiering.buckets.bucket_url import check_url, open_bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import TieringError


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3://bucket/some/prefix", "gs://b/p", "az://container/p", "file:///srv/tier"]
)
def test_check_url_takes_what_a_bucket_can_have(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "expected s3://BUCKET"),
        ("/srv/tier", "expected s3://BUCKET"),
        ("http://localhost/x", "expected s3://BUCKET"),
        ("s3://", "expected the name of a bucket"),
        ("file://host/x", "absolute path"),
        ("file:relative", "absolute path"),
        ("s3://key:secret@bucket/x", "credentials do not belong"),
        ("s3://bucket/x?token=secret", "not allowed"),
        ("s3://bucket/x#part", "not allowed"),
    ],
)
def test_check_url_says_what_is_wrong_and_no_secret(url: str, says: str) -> None:
    with pytest.raises(TieringError, match=says) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


def test_open_bucket_makes_a_folder_bucket_of_a_file_url(tmp_path: Path) -> None:
    bucket = open_bucket(f"file://{tmp_path}/with%20blank")
    assert isinstance(bucket, FolderBucket)
    bucket.create("x", b"1")
    assert (tmp_path / "with blank" / "x").read_bytes() == b"1"


def test_open_bucket_names_the_extra_when_its_client_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timestone_tiering.buckets.object_storage", None)
    with pytest.raises(TieringError, match=r"pip install '.\[s3\]'"):
        open_bucket("s3://bucket/x")
