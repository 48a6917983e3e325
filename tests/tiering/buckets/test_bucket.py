"""What tiering relies on, of each kind of bucket: the same tests for a folder and for a real server."""

import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.s3_server import BUCKET
from timestone_tiering.buckets.bucket import PIECE_BYTES, Bucket
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import ObjectExists, ObjectMissing


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def any_bucket(request: pytest.FixtureRequest) -> Bucket:
    if request.param == "folder":
        folder: FolderBucket = request.getfixturevalue("bucket")
        return folder
    request.getfixturevalue("s3_environment")
    return open_bucket(f"s3://{BUCKET}/{secrets.token_hex(4)}/inner")


def names(bucket: Bucket, prefix: str = "", after: str = "") -> list[str]:
    return [facts.name for facts in bucket.objects(prefix, after=after)]


def test_create_makes_an_object_once(any_bucket: Bucket) -> None:
    any_bucket.create("a/one", b"first")
    with pytest.raises(ObjectExists, match="a/one"):
        any_bucket.create("a/one", b"second")
    assert any_bucket.read("a/one") == b"first"
    assert names(any_bucket) == ["a/one"]


def test_create_has_one_winner_when_many_callers_race(any_bucket: Bucket) -> None:
    def try_it(number: int) -> bool:
        try:
            any_bucket.create("race", b"%d" % number)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(try_it, range(8)))
    assert won.count(True) == 1
    assert any_bucket.read("race") == b"%d" % won.index(True)


@pytest.mark.parametrize("count", [0, 1, 9, 20])
def test_write_makes_an_object_of_pieces(any_bucket: Bucket, count: int) -> None:
    pieces = [bytes([number]) * PIECE_BYTES for number in range(count)]
    tag = any_bucket.write("big", iter(pieces))
    facts = any_bucket.head("big")
    assert (facts.name, facts.size_bytes, facts.tag) == ("big", count * PIECE_BYTES, tag)
    assert any_bucket.read("big") == b"".join(any_bucket.stream("big")) == b"".join(pieces)
    if count:
        assert any_bucket.read_range("big", PIECE_BYTES * count - 3, 2) == bytes([count - 1]) * 2


@pytest.mark.parametrize("fails_at", [0, 3, 15])
def test_write_leaves_nothing_when_its_source_fails(any_bucket: Bucket, fails_at: int) -> None:
    def failing() -> object:
        for number in range(20):
            if number == fails_at:
                raise LookupError("the source")
            yield bytes(PIECE_BYTES)

    with pytest.raises(LookupError, match="the source"):
        any_bucket.write("broken", failing())  # type: ignore[arg-type]
    assert names(any_bucket) == []


def test_objects_come_in_order_from_behind_a_name(any_bucket: Bucket) -> None:
    for name in ("b/2", "b/10", "a/1", "b/1", "c/1", "b/deep/1"):
        any_bucket.write(name, [b"x"])
    assert names(any_bucket) == ["a/1", "b/1", "b/10", "b/2", "b/deep/1", "c/1"]
    assert names(any_bucket, "b/") == ["b/1", "b/10", "b/2", "b/deep/1"]
    assert names(any_bucket, "b/", after="b/10") == ["b/2", "b/deep/1"]
    assert names(any_bucket, "none/") == []
    assert any_bucket.prefixes("") == ["a/", "b/", "c/"]
    assert any_bucket.prefixes("b/") == ["b/deep/"]
    assert any_bucket.prefixes("none/") == []


def test_what_is_not_there_is_missing(any_bucket: Bucket) -> None:
    def stream(name: str) -> object:
        return list(any_bucket.stream(name))

    for call in (any_bucket.read, stream, any_bucket.head, lambda name: any_bucket.read_range(name, 0, 1)):
        with pytest.raises(ObjectMissing, match="nothing"):
            call("nothing")


def test_delete_takes_what_is_there_and_what_is_not(any_bucket: Bucket) -> None:
    any_bucket.write("a", [b"1"])
    any_bucket.write("b", [b"2"])
    any_bucket.delete(["a", "never"])
    any_bucket.delete([])
    assert names(any_bucket) == ["b"]
