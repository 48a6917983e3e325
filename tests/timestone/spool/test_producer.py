"""Posting records: to an owner that listens, to one that does not, and to a store without an owner."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import timestone
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.postings import LOG, frame, staged
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.errors import PostingNotTaken, PostingRefused
from timestone.spool.consumer import POSTED_SUFFIX, REFUSED_SUFFIX
from timestone.spool.format import Frame, Posting
from timestone.spool.producer import SpoolProducer


def payloads(path: Path) -> list[bytes]:
    with timestone.view(path) as view:
        return [record.payload for record in view.log(LOG).reader()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_producer_owns_the_store_when_it_has_no_owner(tmp_path: Path) -> None:
    store = tmp_path / "data"
    posting = staged(store, [[frame([b"a", b"b"]), frame([b"c"])], [frame([b"d"])]])
    SpoolProducer(store, timestone.open).post(posting)
    assert payloads(store) == [b"a", b"b", b"c", b"d"]
    assert names(store / "inbox") == ["staging"]


def test_accepting_owner_appends_postings_beside_its_own_records(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        store.accept_postings()
        log = store.log(LOG)
        log.append(b"mine")
        SpoolProducer(tmp_path, timestone.open).post(staged(tmp_path, [[frame([b"theirs"])]]))
        assert log.synced_offset == log.end_offset == 2
        log.append(b"mine again")
        assert [record.payload for record in log.reader()] == [b"mine", b"theirs", b"mine again"]
    assert payloads(tmp_path) == [b"mine", b"theirs", b"mine again"]


def test_posting_is_appended_once_when_posted_many_times(tmp_path: Path) -> None:
    for values in ([b"first"], [b"other records"], [b"first"]):
        SpoolProducer(tmp_path, timestone.open).post(staged(tmp_path, [[frame(values)]], number=3))
    SpoolProducer(tmp_path, timestone.open).post(staged(tmp_path, [[frame([b"earlier"])]], number=2))
    SpoolProducer(tmp_path, timestone.open).post(staged(tmp_path, [[frame([b"later"])]], number=9))
    assert payloads(tmp_path) == [b"first", b"later"]


def test_no_progress_is_kept_for_a_producer_that_is_not_remembered(tmp_path: Path) -> None:
    SpoolProducer(tmp_path, timestone.open).post(staged(tmp_path, [[frame([b"once"])]], remembered=False))
    with timestone.view(tmp_path) as view:
        assert view.documents("postings") == {}


def test_concurrent_producers_are_all_served(tmp_path: Path) -> None:
    def post(number: int) -> None:
        poster = SpoolProducer(tmp_path, timestone.open)
        part = poster.stage(f"group-{number}", [frame([b"%d" % number] * 50)])
        poster.post(Posting(LOG, 0, f"producer-{number}", 0, (part,), True))
        poster.discard_group(f"group-{number}")

    with timestone.open(tmp_path) as store:
        store.accept_postings()
        threads = [threading.Thread(target=post, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = payloads(tmp_path)
    assert sorted(found) == sorted(b"%d" % number for number in range(8) for _ in range(50))
    assert [found[first : first + 50].count(found[first]) for first in range(0, 400, 50)] == [50] * 8
    assert names(tmp_path / "inbox" / "staging") == []


def test_posting_names_an_owner_that_does_not_accept_and_leaves_no_files(tmp_path: Path) -> None:
    with timestone.open(tmp_path):
        posting = staged(tmp_path, [[frame([b"a"])]])
        with pytest.raises(PostingNotTaken, match=r"process \d+, which owns the store and does not accept"):
            SpoolProducer(tmp_path, timestone.open).post(posting, timeout_s=0.2)
        with pytest.raises(PostingNotTaken, match=r"process \d+, which owns the store and does not accept"):
            SpoolProducer(tmp_path, timestone.open).post(
                posting, timeout_s=-1.0
            )  # as if the time were over before it could call
    assert names(tmp_path / "inbox") == ["staging"]
    SpoolProducer(tmp_path, timestone.open).post(posting)
    assert payloads(tmp_path) == [b"a"]


@pytest.mark.parametrize(
    ("values", "topic", "said"),
    [
        ([b"a"], "devices/+/cmd", "contains a wildcard"),
        ([b"a", bytes(17 << 20)], None, "record 1 of part 1 of a posting .* over the limit"),
    ],
    ids=["topic", "size"],
)
def test_posting_that_can_never_be_appended_is_refused_with_the_reason(
    values: list[bytes], topic: str | None, said: str, tmp_path: Path
) -> None:
    posting = staged(tmp_path, [[frame([b"good"])], [frame(values, topic)]])
    with pytest.raises(PostingRefused, match=said):
        SpoolProducer(tmp_path, timestone.open).post(posting)
    assert payloads(tmp_path) == []
    assert names(tmp_path / "inbox") == ["staging"]


@pytest.mark.parametrize("document", [b"{}", *DAMAGED_JSON.values()])
def test_unreadable_refusal_counts_as_a_refusal(tmp_path: Path, document: bytes) -> None:
    posting = staged(tmp_path, [[frame([b"a"])]])
    posted = tmp_path / "inbox" / (posting.id.stem + POSTED_SUFFIX)
    refused = posted.with_suffix(REFUSED_SUFFIX)
    with timestone.open(tmp_path), ThreadPoolExecutor(1) as executor:
        result = executor.submit(SpoolProducer(tmp_path, timestone.open).post, posting)
        wait_for(posted.exists)
        refused.write_bytes(document)
        posted.unlink()
        with pytest.raises(PostingRefused, match=f"the reason in {refused} cannot be read"):
            result.result(TIMEOUT_S)
    assert not refused.exists()


def test_discard_removes_parts_and_ignores_missing_ones(tmp_path: Path) -> None:
    poster = SpoolProducer(tmp_path, timestone.open)
    parts = [poster.stage("group", [frame([b"a"])]) for _ in range(2)]
    poster.discard([parts[0], parts[0]])
    assert len(names(tmp_path / "inbox" / "staging" / "group")) == 1
    poster.discard_group("group")
    poster.discard_group("group")
    assert names(tmp_path / "inbox" / "staging") == []


def test_failed_part_leaves_no_file(tmp_path: Path) -> None:
    def frames() -> Iterator[Frame]:
        yield frame([b"a"])
        raise RuntimeError("the task died")

    with pytest.raises(RuntimeError):
        SpoolProducer(tmp_path, timestone.open).stage("group", frames())
    assert names(tmp_path / "inbox" / "staging" / "group") == []
