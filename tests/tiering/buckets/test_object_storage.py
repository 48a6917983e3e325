"""Object stores through their client: what it is given, and what is said of its errors. The calls themselves are in
`test_bucket.py`, against a real server."""

import secrets

import pytest

from tests.support.s3_server import BUCKET, SECRET, S3Server
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.object_storage import ObjectStorage, _failure
from timestone_tiering.errors import BucketRefused, BucketUnavailable


def test_errors_are_one_line_without_queries_and_numbers_of_requests() -> None:
    text = (
        "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/x?X-Amz-Signature=secret in 1ms - Server returned "
        'non-2xx status code: 503: <?xml version="1.0"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your '
        "rate</Message><RequestId>17</RequestId></Error>\n\nDebug source:\nGeneric { secret }"
    )
    error = _failure("s3://b", Exception(text))
    assert isinstance(error, BucketUnavailable)
    assert str(error).startswith("s3://b: Error performing PUT http://127.0.0.1:1/b/x in 1ms")
    assert str(error).endswith("status code: 503: SlowDown: Please reduce your rate")
    assert "secret" not in str(error)


@pytest.mark.parametrize("declaration", ["", "<?xml version='1.0'?>", '<?xml version="1.0"?>\n'])
@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "NoSuchBucket", "RequestTimeTooSkewed"])
def test_answers_that_stay_the_same_are_refusals(code: str, declaration: str) -> None:
    answer = f"{declaration}<Error><Code>{code}</Code><Message>no</Message></Error>"
    answer = f"GET http://127.0.0.1/x?list=1 failed: {answer}"
    error = _failure("s3://b", Exception(answer))
    assert isinstance(error, BucketRefused)
    assert str(error).endswith(f"{code}: no") and "list=1" not in str(error)


def test_missing_credentials_are_named_as_that() -> None:
    error = _failure("s3://b", Exception("Error performing PUT 169.254.169.254/latest/api/token"))
    assert isinstance(error, BucketRefused)
    assert "no credentials" in str(error)


def test_a_server_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bucket: Bucket = ObjectStorage("s3://bucket/x", endpoint="http://127.0.0.1:1", region="us-east-1")
    with pytest.raises(BucketUnavailable) as caught:
        bucket.read("name")
    assert SECRET not in str(caught.value)


@pytest.mark.slow
def test_wrong_keys_and_unknown_buckets_are_refused(
    s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BucketRefused, match="NoSuchBucket"):
        list(ObjectStorage(f"s3://no-{secrets.token_hex(4)}/x").objects("owners/"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BucketRefused) as caught:
        list(ObjectStorage(f"s3://{BUCKET}/x").objects("owners/"))
    assert "wrong" not in str(caught.value)
