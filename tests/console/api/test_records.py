from pathlib import Path

import pytest

import timestone
from tests.support.console_client import Console
from tests.support.stores import LOG, fill
from timestone_console.api import records as records_module

HOSTILE = [
    "<script>alert(1)</script>",
    '"onmouseover="x',
    "javascript:x",
    "{{7*7}}",
    "=1-1",
    "a\u202eb",
    "__proto__",
]


def test_pages_meet_each_record_once(tmp_path: Path) -> None:
    fill(tmp_path / "data", 70)
    with Console(tmp_path / "data") as console:
        for order, expected in (("oldest", list(range(70))), ("newest", list(range(69, -1, -1)))):
            whole: list[int] = []
            parameters: dict[str, int] = {}
            while True:
                found = console.get("records", log=LOG, order=order, limit=30, **parameters)
                whole += [row["offset"] for row in found["records"]]
                if found["next"] is None:
                    break
                parameters = {"from": found["next"]}
            assert whole == expected


def test_reply_stays_small_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "_PAGE_BYTES", 5000)
    with timestone.open(tmp_path / "data") as store:
        store.log(LOG).append_many([b"x" * 1000] * 20)
    with Console(tmp_path / "data") as console:
        found = console.get("records", log=LOG)
        assert 1 < len(found["records"]) < 20 and found["next"] == len(found["records"])
        back = console.get("records", log=LOG, order="newest")
        assert back["next"] == back["records"][-1]["offset"]


def test_hostile_topics_and_payloads_are_text(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        for one in HOSTILE:
            store.log(LOG).append(one.encode(), topic=one)
    with Console(tmp_path / "data") as console:
        rows = console.get("records", log=LOG)["records"]
        assert [row["topic"] for row in rows] == HOSTILE == [row["value"]["text"] for row in rows]


def test_raw_record_is_an_attachment_with_a_name_of_ours(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log(LOG).append(b"<html>", topic='x"; filename=evil.html')
    with Console(tmp_path / "data") as console:
        found = console.http.get(f"/api/v1/records/{LOG}/0/0/raw")
        assert found.content == b"<html>" and found.headers["content-type"] == "application/octet-stream"
        assert found.headers["content-disposition"] == f'attachment; filename="{LOG}-0-0.bin"'


def test_record_of_a_mebibyte_is_cut(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log(LOG).append(b"x" * (1 << 20))
    with Console(tmp_path / "data") as console:
        found = console.get(f"records/{LOG}/0/0")["record"]
        assert found["bytes"] == 1 << 20 and found["value"]["is_cut"]
        assert len(found["value"]["text"]) == 64 << 10
