"""Settings for S3 from profile files and the environment."""

from pathlib import Path

import pytest

from timestone_tiering.buckets.aws_profile import s3_settings
from timestone_tiering.errors import TieringError

CONFIG = """
[default]
region = eu-central-1
[profile other]
region = eu-north-1
endpoint_url = http://127.0.0.1:9000
"""
CREDENTIALS = """
[default]
aws_access_key_id = default-key
aws_secret_access_key = default%secret
[other]
aws_access_key_id = other-key
aws_secret_access_key = other-secret
aws_session_token = token
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    return {"HOME": str(tmp_path)}


def test_the_default_profile_gives_region_and_keys(home: dict[str, str]) -> None:
    settings = s3_settings(home)
    assert settings["region"] == "eu-central-1"
    keys = settings["credential_provider"]()
    assert (keys["access_key_id"], keys["secret_access_key"]) == ("default-key", "default%secret")
    assert keys["token"] is None


def test_a_named_profile_counts_when_the_environment_names_it(home: dict[str, str]) -> None:
    settings = s3_settings(home | {"AWS_PROFILE": "other"})
    assert (settings["region"], settings["endpoint"]) == ("eu-north-1", "http://127.0.0.1:9000")
    assert settings["credential_provider"]()["token"] == "token"


def test_the_environment_wins_over_a_profile(home: dict[str, str]) -> None:
    found = s3_settings(
        home | {"AWS_ACCESS_KEY_ID": "x", "AWS_REGION": "us-west-2", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    )
    assert found == {"endpoint": "http://127.0.0.1:1"}


def test_keys_are_read_again_when_a_tool_has_renewed_them(home: dict[str, str]) -> None:
    provider = s3_settings(home)["credential_provider"]
    path = Path(home["HOME"], ".aws", "credentials")
    path.write_text(CREDENTIALS.replace("default-key", "renewed-key"))
    assert provider()["access_key_id"] == "renewed-key"


def test_without_files_there_is_nothing_to_add(tmp_path: Path) -> None:
    assert s3_settings({"HOME": str(tmp_path)}) == {}


def test_a_profile_that_is_not_there_is_said(home: dict[str, str]) -> None:
    with pytest.raises(TieringError, match="no profile 'third'"):
        s3_settings(home | {"AWS_PROFILE": "third"})


def test_a_file_that_cannot_be_parsed_is_named_without_its_content(home: dict[str, str]) -> None:
    path = Path(home["HOME"], ".aws", "credentials")
    path.write_text("secret-in-a-wrong-place")
    with pytest.raises(TieringError, match="cannot be parsed") as caught:
        s3_settings(home)
    assert "secret" not in str(caught.value)
