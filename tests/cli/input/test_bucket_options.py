"""Where a bucket is, as the command line and the environment say it."""

import pytest

from timestone_cli.errors import UsageError
from timestone_cli.input.bucket_options import bucket_at


def test_a_url_gives_its_bucket() -> None:
    assert bucket_at("file:///tmp/x", None, None).url == "file:///tmp/x"


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("bucket", None),
        ("s3://key:secret-canary@bucket/x", None),
        ("s3://bucket/x", "http://" + "key:secret-canary@127.0.0.1"),
        ("s3://bucket/x", "127.0.0.1"),
    ],
)
def test_what_is_not_valid_is_a_usage_error_without_secrets(url: str, endpoint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        bucket_at(url, endpoint, None)
    assert "canary" not in str(caught.value)
