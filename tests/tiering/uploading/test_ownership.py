"""Claims on a prefix: one store at a time, with any loss on the way."""

from collections.abc import Mapping

import pytest

from tests.support.buckets import FaultyBucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketUnavailable, DamagedObject, ObjectExists, PrefixInUse, UnfitBucket
from timestone_tiering.uploading.ownership import SPACE, Ownership, newest_claim, probe


class Documents:
    """The catalogue of a store, in memory."""

    def __init__(self, items: Mapping[str, bytes] | None = None) -> None:
        self.items = dict(items or {})

    def get(self, space: str, key: str) -> bytes | None:
        assert space == SPACE
        return self.items.get(key)

    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None:
        for key, value in items.items():
            assert value is not None
            self.items[key] = value


def ownership(bucket: FolderBucket | FaultyBucket, documents: Documents) -> Ownership:
    return Ownership(bucket, documents, lambda: 7)


def test_each_start_of_a_store_claims_the_next_generation(bucket: FolderBucket) -> None:
    documents = Documents()
    assert [ownership(bucket, documents).claim() for _ in range(3)] == [1, 2, 3]


def test_another_store_is_refused_with_the_owner_named(bucket: FolderBucket) -> None:
    ownership(bucket, Documents()).claim()
    with pytest.raises(PrefixInUse, match=r"generation 1, host '.+', pid \d+"):
        ownership(bucket, Documents()).claim()


def test_a_copy_of_a_store_is_refused_once_the_store_has_claimed_again(bucket: FolderBucket) -> None:
    documents = Documents()
    ownership(bucket, documents).claim()
    copy = Documents(documents.items)
    ownership(bucket, documents).claim()
    with pytest.raises(PrefixInUse):
        ownership(bucket, copy).claim()


def test_a_store_sees_that_a_copy_of_it_has_claimed(bucket: FolderBucket) -> None:
    documents = Documents()
    first = ownership(bucket, documents)
    first.claim()
    first.check()
    ownership(bucket, Documents(documents.items)).claim()
    with pytest.raises(PrefixInUse, match="has taken over"):
        first.check()


def test_one_store_wins_when_two_claim_at_the_same_time(bucket: FolderBucket) -> None:
    class Late(FolderBucket):
        """Another store comes first, after this one has looked."""

        def create(self, name: str, data: bytes) -> str | None:
            if name.startswith("owners/"):
                bucket.create(name, b'{"generation": 1, "token": "other", "host": "elsewhere"}')
            return super().create(name, data)

    with pytest.raises(PrefixInUse, match="elsewhere"):
        ownership(Late(bucket._root), Documents()).claim()


@pytest.mark.parametrize("carried_out", [False, True])
def test_claim_is_finished_by_the_next_call_when_any_answer_is_lost(
    bucket: FolderBucket, carried_out: bool
) -> None:
    documents = Documents()
    whole = FaultyBucket(bucket)
    ownership(whole, documents).claim()
    ownership(whole, documents).claim()
    expected = 3
    for number in range(len(whole.calls)):
        faulty = FaultyBucket(bucket)
        faulty.fail_at, faulty.carried_out = number, carried_out
        try:
            found = ownership(faulty, documents).claim()
        except BucketUnavailable:
            found = ownership(bucket, documents).claim()
        newest = newest_claim(bucket)
        assert newest is not None and newest.generation == found
        assert (
            expected <= found <= expected + 1
        )  # a claim that was made counts, whether it was heard of or not
        expected = found + 1


def test_adopt_makes_the_newest_claim_this_store_own(bucket: FolderBucket) -> None:
    assert ownership(bucket, Documents()).adopt() is None
    ownership(bucket, Documents()).claim()
    documents = Documents()
    adopted = ownership(bucket, documents).adopt()
    assert adopted is not None and adopted.generation == 1
    assert ownership(bucket, documents).claim() == 2


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"generation": 1}', b'{"generation": "1", "token": "x"}', b"\xff"]
)
def test_a_damaged_claim_is_refused(bucket: FolderBucket, data: bytes) -> None:
    bucket.create("owners/0000000001.json", data)
    with pytest.raises(DamagedObject, match="owners/0000000001"):
        ownership(bucket, Documents()).claim()


def test_a_damaged_note_of_the_catalogue_is_refused(bucket: FolderBucket) -> None:
    with pytest.raises(DamagedObject, match="catalogue"):
        ownership(bucket, Documents({bucket.url: b'{"claims": [{}]}'})).claim()


class Careless(FolderBucket):
    """Accepts the header and ignores it, as some servers do."""

    def create(self, name: str, data: bytes) -> str | None:
        return self.write(name, (data,))


class Forgetful(FolderBucket):
    """Tells one caller that it won, and keeps the object of another."""

    def create(self, name: str, data: bytes) -> str | None:
        try:
            super().create(name, b"99")
        except ObjectExists:
            raise
        return None


@pytest.mark.parametrize("kind", [Careless, Forgetful])
def test_a_bucket_with_broken_create_only_is_refused(bucket: FolderBucket, kind: type[FolderBucket]) -> None:
    with pytest.raises(UnfitBucket, match="If-None-Match"):
        ownership(kind(bucket._root), Documents()).claim()
    assert newest_claim(bucket) is None
    assert list(bucket.objects("")) == []


def test_probe_accepts_a_bucket_whose_answer_to_the_winner_is_lost(bucket: FolderBucket) -> None:
    class Lossy(FolderBucket):
        def create(self, name: str, data: bytes) -> str | None:
            super().create(name, data)
            raise ObjectExists("the second try of the client")

    probe(Lossy(bucket._root))
