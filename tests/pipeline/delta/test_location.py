"""A folder or a URL, and the settings for its client."""

from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from timestone_pipeline.delta.location import Location
from timestone_pipeline.errors import InvalidConfig


def test_path_is_a_folder_and_a_url_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of("tables").folder == tmp_path / "tables"
    assert Location.of("file:///srv/tables/").folder == Path("/srv/tables")
    bucket = Location.of("s3://bucket/a/b/")
    assert (bucket.folder, bucket.child("clean").uri) == (None, "s3://bucket/a/b/clean")
    assert Location.of("tables").checkpoint == tmp_path / "tables" / "_checkpoint"
    other = Location.of("s3://bucket/other")
    assert bucket.checkpoint.parent == Path() and bucket.checkpoint != other.checkpoint


@pytest.mark.parametrize("url", ["s3://", "ftp://x/y", "s3://key:secret@bucket/x", "s3://bucket/x?secret=1"])
def test_invalid_url_is_refused_without_what_may_be_a_secret(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"tables\.path: ") as caught:
        Location.of(url)
    assert "secret" not in str(caught.value)


def test_settings_of_the_client_come_from_the_environment_and_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    (tmp_path / "config").write_text("[default]\nregion = north\nendpoint_url = http://127.0.0.1:1\n")
    assert Location.of("tables").options() == {}
    found = Location.of("s3://bucket/x").options()
    assert {name: found[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")} == {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "north",
    }  # fmt: skip
    assert (found["AWS_ENDPOINT_URL"], found["AWS_ALLOW_HTTP"]) == ("http://127.0.0.1:1", "true")
    files = Location.of("s3://bucket/x").threaded_filesystem(found)
    assert (type(files.base_fs), files.base_path) == (S3FileSystem, "bucket/x/")
    assert "secret" not in repr(Location.of("s3://bucket/x")).lower()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    assert Location.of("s3://bucket/x").options()["AWS_ENDPOINT_URL"] == "http://127.0.0.1:2"
