"""Named readers continue at their commit: in this process, in the next one, in a view."""

import gc
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.damaged_json import DAMAGED_JSON
from timestone import (
    Commitment,
    CorruptLog,
    InvalidName,
    OffsetOutOfRange,
    Pin,
    ReaderId,
    ReaderInUse,
    ReaderLag,
    ReadOnlyStore,
    Store,
    StoreClosed,
    UnknownLog,
)
from timestone.reading.named_readers import SPACE
from timestone.repair.inspection import inspect_store


def filled(path: Path, count: int = 10) -> Store:
    store = timestone.open(path, ack="written")
    log = store.log("a")
    log.append_many([b"%d" % number for number in range(log.end_offset, count)])
    return store


def payloads(reader: timestone.Reader) -> list[bytes]:
    return [record.payload for record in reader]


def test_reader_continues_at_its_commit_in_the_next_process(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store, store.log("a").reader(name="billing") as reader:
        assert reader.committed_offset is None
        assert len(reader.read(max_records=4)) == 4
        reader.commit()
        reader.read(max_records=3)
    with filled(tmp_path / "data") as store:
        again = store.log("a").reader("latest", name="billing")
        assert again.offset == again.committed_offset == 4
        assert payloads(again) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_start_is_used_only_without_a_commit(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        log = store.log("a")
        reader = log.reader(7, name="x")
        assert reader.offset == 7
        reader.close()
        reader = log.reader("latest", name="x")
        assert reader.offset == 10
        reader.commit(3)
        reader.close()
        assert log.reader(10_000, name="x").offset == 3, "not even looked at"


def test_offset_can_be_named_while_iterating(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        reader = store.log("a").reader(name="x")
        for record in reader:
            if record.offset == 5:
                reader.commit(record.offset + 1)
                break
        assert reader.offset == 6
        assert reader.committed_offset == 6


def test_commit_while_iterating_covers_the_yielded_records(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        with store.log("a").reader(name="x") as reader:
            for record in reader:
                if record.payload == b"5":
                    reader.commit()
                    break
        with store.log("a").reader(name="x") as reader:
            assert payloads(reader) == [b"6", b"7", b"8", b"9"]


def test_offset_may_come_from_a_column_of_a_batch(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store, store.log("a").reader(name="billing") as reader:
        offset = reader.read().offsets[3]
        reader.commit(offset)
        assert reader.committed_offset == 3
        store.commit_readers({ReaderId("a", 0, "billing"): offset + 1})
        assert reader.committed_offset == 4


def test_metadata_of_a_commit_is_read_back_until_the_next_commit(tmp_path: Path) -> None:
    x, y = ReaderId("a", 0, "x"), ReaderId("a", 0, "y")
    longest = "ü" * 2048
    with filled(tmp_path / "data") as store, timestone.view(tmp_path / "data") as view:
        with store.log("a").reader(name="x") as reader:
            reader.commit(1, metadata="first")
            assert store.readers()[x].metadata == "first"
        view.commit_readers({x: 2, y: 3}, metadata={y: longest})
        assert [store.readers()[one].metadata for one in (x, y)] == ["", longest]
        for text, error in ((longest + "x", ValueError), (5, TypeError), ("\ud800", ValueError)):
            with pytest.raises(error):
                store.commit_readers({x: 4, y: 4}, metadata={y: text})  # type: ignore[dict-item]
        for owner in (store, view):
            with pytest.raises(TypeError, match=r"^invalid metadata: expected texts by ReaderId, got 'all'$"):
                owner.commit_readers({x: 4}, metadata="all")  # type: ignore[arg-type]
        assert [store.readers()[one].offset for one in (x, y)] == [2, 3]
    with filled(tmp_path / "data") as store:
        assert store.readers()[y].metadata == longest


def test_name_is_held_by_one_reader_of_a_log_until_it_is_closed(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        first = store.log("a").reader(name="x")
        with pytest.raises(ReaderInUse, match="a-0 already has an open reader named 'x'"):
            store.log("a").reader(name="x")
        store.log("b").reader(name="x")
        store.log("a", 1).reader(name="x")
        first.close()
        first.close()
        second = store.log("a").reader(name="x")
        first.close()
        with pytest.raises(ReaderInUse):
            store.log("a").reader(name="x")
        second.close()


def test_reader_dropped_without_close_does_not_hold_its_name(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.log("a").reader(name="x")
        gc.collect()
        store.log("a").reader(name="x")


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 513])
def test_invalid_reader_name_is_refused(tmp_path: Path, name: str) -> None:
    with filled(tmp_path / "data") as store, pytest.raises(InvalidName):
        store.log("a").reader(name=name)


@pytest.mark.parametrize("name", ["billing", "mqtt/dev/7", "a/b", "größe 5", "x" * 512])
def test_names_are_stored_unchanged(tmp_path: Path, name: str) -> None:
    with filled(tmp_path / "data") as store:
        store.log("a").reader(name=name).commit(2)
        assert list(store.readers()) == [ReaderId("a", 0, name)]


def test_commit_is_refused_without_name_beyond_the_end_and_after_close(tmp_path: Path) -> None:
    store = filled(tmp_path / "data")
    log = store.log("a")
    with pytest.raises(ValueError, match="expected a reader with a name"):
        log.reader().commit()
    reader = log.reader(name="x")
    for offset in (-1, 11):
        with pytest.raises(OffsetOutOfRange) as caught:
            reader.commit(offset)
        assert (caught.value.requested, caught.value.start, caught.value.end) == (offset, 0, 10)
    reader.commit(10)
    other = log.reader(name="y")
    other.close()
    with pytest.raises(StoreClosed):
        other.commit()
    store.close()
    with pytest.raises(StoreClosed):
        reader.commit()
    with pytest.raises(StoreClosed):
        store.readers()


def test_many_readers_are_committed_together_or_not_at_all(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.log("b").append(b"x")
        billing, audit = ReaderId("a", 0, "billing"), ReaderId("b", 0, "audit")
        store.commit_readers({billing: 4, audit: 1})
        with pytest.raises(OffsetOutOfRange):
            store.commit_readers({billing: 5, audit: 2})
        with pytest.raises(UnknownLog):
            store.commit_readers({billing: 5, ReaderId("c", 0, "x"): 0})
        with pytest.raises(InvalidName):
            store.commit_readers({billing: 5, ReaderId("a", 0, ""): 0})
        store.commit_readers({})
        assert {reader: found.offset for reader, found in store.readers().items()} == {billing: 4, audit: 1}
        assert store.log("a").reader(name="billing").offset == 4
        store.forget_readers([billing])
        assert list(store.readers()) == [audit]


def test_committed_offset_beyond_the_log_is_an_error_with_numbers_at_the_first_read(tmp_path: Path) -> None:
    """The files were restored from an older copy than the catalogue."""
    with filled(tmp_path / "data") as store:
        store.documents.put_many(SPACE, {"a-0/x": Commitment(500, 1).encode()})
        reader = store.log("a").reader(name="x")
        with pytest.raises(OffsetOutOfRange, match=r"offset 500 is out of range: the log holds \[0, 10\)"):
            reader.read()
        reader.seek("earliest")
        assert len(payloads(reader)) == 10


def test_view_commits_beside_the_owner(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        x = ReaderId("a", 0, "x")
        store.commit_readers({x: 6})
        with timestone.view(tmp_path / "data") as view:
            reader = view.log("a").reader(name="x")
            with pytest.raises(ReaderInUse):
                view.log("a").reader(name="x")
            assert [record.payload for record in reader.read(max_records=2)] == [b"6", b"7"]
            reader.commit()
            assert store.committed(x) == view.committed(x) == view.readers()[x]
            assert reader.committed_offset == 8
            store.log("a").append(b"10")
            view.commit_readers({x: 11})  # a view that has not looked since
            with pytest.raises(OffsetOutOfRange, match=r"offset 12 .* \[0, 11\)"):
                view.commit_readers({x: 12})
            with pytest.raises(UnknownLog):
                view.commit_readers({ReaderId("b", 0, "x"): 0})
            store.commit_readers({x: 9})
            assert reader.committed_offset == 9
            view.forget_readers([x])
            assert store.readers() == {}


def test_owner_and_views_commit_at_the_same_time_and_none_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store, timestone.view(tmp_path / "data") as view:
        readers = [ReaderId("a", 0, name) for name in "xyz"]

        def commit_all(commit: Callable[[dict[ReaderId, int]], None], reader: ReaderId) -> None:
            for offset in range(11):
                commit({reader: offset})

        with ThreadPoolExecutor() as pool:
            work = [
                pool.submit(commit_all, commit, reader)
                for reader, commit in zip(
                    readers, (store.commit_readers, view.commit_readers, view.commit_readers), strict=True
                )
            ]
            for done in work:
                done.result()
        assert {reader: found.offset for reader, found in store.readers().items()} == dict.fromkeys(
            readers, 10
        )


def test_view_commit_names_the_reason_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "data").close()
    with timestone.view(tmp_path / "data") as view:
        reader = view.log("a").reader(name="x")
        with monkeypatch.context() as patch:
            patch.setattr("os.access", lambda path, mode: False)  # permissions do not hold root back
            with pytest.raises(ReadOnlyStore, match="this user may not write"):
                reader.commit()
        (tmp_path / "data" / "catalog.db").unlink()
        with pytest.raises(ReadOnlyStore, match=r"there is no catalog\.db"):
            reader.commit()
        assert not (tmp_path / "data" / "catalog.db").exists()


def test_pin_is_stored_with_the_commit(tmp_path: Path) -> None:
    week, x = Pin(max_age_ms=7 * 24 * 3600 * 1000), ReaderId("a", 0, "x")
    with filled(tmp_path / "data") as store:
        with pytest.raises(ValueError, match="name"):
            store.log("a").reader(pin=week)
        with store.log("a").reader(4, name="x", pin=week) as reader:
            assert (store.readers()[x].offset, store.readers()[x].pin) == (4, week), "before the first commit"
            reader.read(max_records=3)
            reader.commit()
    with filled(tmp_path / "data") as store:
        assert (store.readers()[x].offset, store.readers()[x].pin) == (7, week)
        with store.log("a").reader(name="x", pin=Pin(max_bytes=1)) as reader:
            assert store.readers()[x].pin == Pin(max_bytes=1)
        with store.log("a").reader(name="x") as reader:
            assert store.readers()[x].pin is not None
            reader.commit()
            assert store.readers()[x].pin is None


@pytest.mark.parametrize("reader", ["x", ("a", 0, "x"), None])
def test_reader_is_shown_with_its_log(tmp_path: Path, reader: Any) -> None:
    message = rf"invalid reader: expected a ReaderId\(log, partition, name\), got {re.escape(repr(reader))}"
    with filled(tmp_path / "data") as store, timestone.view(tmp_path / "data") as view:
        for place in (store, view):
            with pytest.raises(TypeError, match=message):
                place.commit_readers({reader: 3})
            with pytest.raises(TypeError, match=message):
                place.forget_readers([reader])


def test_invalid_pin_frees_the_reader_name(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        with pytest.raises(TypeError, match=r"invalid pin: expected a timestone\.Pin, got 4096"):
            store.log("a").reader(name="x", pin=4096)  # type: ignore[arg-type]
        store.log("a").reader(name="x").close()
        assert not store.readers()


def test_pin_beyond_the_log_frees_the_reader_name(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.documents.put_many(SPACE, {"a-0/x": Commitment(500, 1).encode()})
        with pytest.raises(OffsetOutOfRange):
            store.log("a").reader(name="x", pin=Pin(max_bytes=1))
        store.log("a").reader(name="x").close()


def test_lag_is_known_to_the_log_and_to_its_views(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.log("b").append(b"1")
        pin = Pin(max_bytes=1)
        store.commit_readers({ReaderId("a", 0, "group"): 4, ReaderId("b", 0, "group"): 1}, pin=pin)
        store.commit_readers({ReaderId("a", 0, "audit"): 10})
        with timestone.view(tmp_path / "data") as view:
            for log in (store.log("a"), view.log("a")):
                audit, group = log.lags()
                assert (audit.reader.name, audit.lag, audit.missed) == ("audit", 0, 0)
                assert (group.committed.offset, group.end_offset, group.lag) == (4, 10, 6)
                assert group.committed.pin == pin
            (b,) = view.log("b").lags()
            assert (b.reader, b.lag) == (ReaderId("b", 0, "group"), 0)


def test_lag_counts_readable_and_missed_offsets_separately() -> None:
    behind = ReaderLag(ReaderId("a", 0, "x"), Commitment(5, 1), start_offset=8, end_offset=20)
    assert (behind.lag, behind.missed) == (12, 3)
    restored = ReaderLag(ReaderId("a", 0, "x"), Commitment(50, 1), start_offset=8, end_offset=20)
    assert (restored.lag, restored.missed) == (0, 0)


def test_view_without_a_catalogue_has_no_named_readers(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    (tmp_path / "data" / "catalog.db").unlink()
    with timestone.view(tmp_path / "data") as view:
        assert view.readers() == {}
        assert view.log("a").reader(3, name="x").offset == 3


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b'{"offset": 1, "committed_us": 1, "pin": {"max_bytes": 0}}',
        b'{"offset": "x", "committed_us": 1}',
        b'{"offset": -1, "committed_us": 1}',
        b'{"offset": 1.5, "committed_us": 1}',
        b'{"offset": 1, "committed_us": 1, "pin": 5}',
        b'{"offset": 1, "committed_us": 1, "metadata": 5}',
        b'{"offset": 1, "committed_us": 1, "metadata": "%s"}' % (b"x" * 4097),
        b'{"offset": 1, "committed_us": 1, "metadata": "\\ud800"}',
        *DAMAGED_JSON.values(),
    ],
)
def test_invalid_document_is_refused_by_name(tmp_path: Path, document: bytes) -> None:
    with filled(tmp_path / "data") as store:
        store.documents.put_many(SPACE, {"a-0/x": document})
        with pytest.raises(CorruptLog, match="a-0/x"):
            store.log("a").reader(name="x")
        with pytest.raises(CorruptLog, match="a-0/x"):
            store.readers()


def test_foreign_documents_in_the_space_are_not_changed(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.documents.put_many(SPACE, {"nothing": b"", "a-0/": b"", "/x": b""})
        assert store.readers() == {}


def test_commit_is_stored_as_json_with_offset_and_time(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.log("a").reader(name="x").commit(6)
        stored = json.loads(store.documents.items(SPACE)["a-0/x"])
        assert stored["offset"] == 6
        assert 0 < stored["committed_us"] <= store.now_us()


def test_inspect_lists_readers_with_their_lag(tmp_path: Path) -> None:
    with filled(tmp_path / "data") as store:
        store.log("a").reader(name="x").commit(6)
        store.log("b").append(b"1")
        store.log("b").reader(name="y").commit(1)
        (x, y) = inspect_store(tmp_path / "data").readers
        assert (x.log, x.partition, x.name, x.offset, x.lag, x.missed) == ("a", 0, "x", 6, 4, 0)
        assert (y.name, y.lag) == ("y", 0)
        assert [reader.name for reader in inspect_store(tmp_path / "data", log="b").readers] == ["y"]
