"""Settings of a tier."""

import pytest

from timestone_tiering.config import TierConfig
from timestone_tiering.errors import TieringError

CREDENTIALS = "https://" + "key:secret@localhost"


def test_without_a_url_there_is_no_tier() -> None:
    assert TierConfig().url is None


@pytest.mark.parametrize("url", ["", "ftp://x/y", "s3://user:password@bucket"])
def test_a_url_that_no_bucket_has_is_refused(url: str) -> None:
    with pytest.raises(TieringError, match="invalid URL"):
        TierConfig(url=url)


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="upload_bytes_per_s"):
        TierConfig(url="s3://bucket", upload_bytes_per_s=-1)


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:9000", "ftp://host", "http://", "http://a..example", CREDENTIALS]
)
def test_an_endpoint_that_is_not_an_address_is_refused(endpoint: str) -> None:
    with pytest.raises(TieringError, match="invalid endpoint") as caught:
        TierConfig(url="s3://bucket", endpoint=endpoint)
    assert "secret" not in str(caught.value)
