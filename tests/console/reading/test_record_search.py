from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.stores import LOG, fill
from timestone.view import view_store
from timestone_console.problems import Problem
from timestone_console.reading import record_search
from timestone_console.reading.record_search import (
    Conditions,
    Found,
    at_path,
    numbers_in,
    position,
    search_backwards,
    search_forwards,
)


def offsets(found: Found) -> list[int]:
    return [one.offset for one in found.items]


def test_search_goes_on_where_a_page_ended_in_both_directions(tmp_path: Path) -> None:
    fill(tmp_path / "data", 250, segment_entries=40)
    with view_store(tmp_path / "data") as view:
        log = view.log(LOG)
        for search, start, expected in (
            (search_forwards, 0, list(range(250))),
            (search_backwards, 250, list(range(249, -1, -1))),
        ):
            whole: list[int] = []
            at: int | None = start
            while at is not None:
                found = search(log, at, 33, Conditions())
                whole += offsets(found)
                at = found.next
            assert whole == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (Conditions(topics=["a/#"]), [0, 1, 3]),
        (Conditions(topics=["a/1", "b"]), [0, 2, 3]),
        (Conditions(text="warm"), [1]),
        (Conditions(path="t"), [0, 3]),
        (Conditions(path="t", value="21"), [0]),
        (Conditions(path="in.1.deep", value="yes"), [3]),
        (Conditions(header="unit"), [2]),
        (Conditions(header="unit=C"), [2]),
        (Conditions(header="unit=F"), []),
        (Conditions(topics=["a/#"], path="t", value="21"), [0]),
    ],
)
def test_conditions_choose_records_in_both_directions(
    tmp_path: Path, conditions: Conditions, expected: Sequence[int]
) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log(LOG)
        log.append(b'{"t": 21}', topic="a/1")
        log.append(b"warm", topic="a/2")
        log.append(b"{}", topic="b", headers=[("unit", b"C")])
        log.append(b'{"t": 22, "in": [0, {"deep": "yes"}]}', topic="a/1")
    with view_store(tmp_path / "data") as view:
        found = view.log(LOG)
        assert offsets(search_forwards(found, 0, 10, conditions)) == expected
        assert offsets(search_backwards(found, 4, 10, conditions)) == expected[::-1]


def test_damaged_record_is_named_in_place(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    segment = next((tmp_path / "data" / f"{LOG}-0").glob("*.segment"))
    damaged = bytearray(segment.read_bytes())
    damaged[len(b"record 0") * 4 + 2] ^= 1
    segment.write_bytes(damaged)
    with view_store(tmp_path / "data") as view:
        log = view.log(LOG)
        for found in (search_forwards(log, 0, 20, Conditions()), search_backwards(log, 10, 20, Conditions())):
            kinds = {one.offset: isinstance(one, record_search.Damage) for one in found.items}
            assert kinds == {offset: offset == 4 for offset in range(10)}


def test_search_ends_in_time_and_says_where_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "data", 5000)
    monkeypatch.setattr(record_search, "SEARCH_S", -1.0)
    with view_store(tmp_path / "data") as view:
        found = search_forwards(view.log(LOG), 0, 1, Conditions(text="never"))
        assert (found.items, found.next, found.is_complete) == ([], 0, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("7", 7),
        ("99", 10),
        ("-1h", 0),
        ("2200-01-01T00:00:00Z", 10),
        (None, 3),
    ],
)
def test_position_is_an_offset_a_word_or_a_time(tmp_path: Path, text: str | None, expected: int) -> None:
    fill(tmp_path / "data", 10)
    with view_store(tmp_path / "data") as view:
        assert position(view.log(LOG), text, None, 3) == expected


@pytest.mark.parametrize("text", ["", "x", "-5 parsecs", "2026-01-01T00:00:00", "1e3", "--", "٣"])
def test_invalid_position_is_refused(tmp_path: Path, text: str) -> None:
    fill(tmp_path / "data", 1)
    with view_store(tmp_path / "data") as view, pytest.raises(Problem, match="invalid from"):
        position(view.log(LOG), text, None, 0)


def test_path_leads_into_a_document_without_running_anything() -> None:
    document: Any = {"a": [{"b": 1}], "__class__": 2}
    assert at_path(document, ["a", "0", "b"]) == 1 and at_path(document, ["__class__"]) == 2
    for path in (["a", "__len__"], ["a", "-1"], ["a", "1"], ["x"], ["a", "0", "b", "real"]):
        with pytest.raises(LookupError):
            at_path(document, path)
    assert dict(numbers_in({"a": {"b": 1, "c": True}, "d": [2.5]})) == {"a.b": 1.0, "d.0": 2.5}
