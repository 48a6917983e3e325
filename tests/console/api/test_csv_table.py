"""Tables of the API as CSV: whole, bounded, and harmless in a spreadsheet."""

import csv
import io
from pathlib import Path
from typing import Any

import msgspec

import timestone
from tests.support.console_client import Console
from timestone.metrics.records import EVENT_TOPICS, EVENTS_LOG, encode_event
from timestone_console.api.csv_table import MEDIA_TYPE, NEXT_HEADER, csv_reply
from timestone_console.api.routes import ROUTES


class Rows(msgspec.Struct):
    rows: list[dict[str, Any]]
    next: int | None = None


def lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    return list(csv.reader(io.StringIO(csv_reply(Rows(rows), "rows").content.decode(), newline="")))


def test_rows_with_other_names_share_a_line_of_names() -> None:
    found = lines([{"a": 1, "b": {"c": None, "d": True}}, {"a": 2.5, "e": [1, "x"]}])
    assert found == [["a", "b.c", "b.d", "e"], ["1", "", "true", ""], ["2.5", "", "", '[1,"x"]']]
    assert lines([]) == []


def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "\r\n=1", "plain", 'a"b,c;=d\r\n', "\u202e", "\ud800"]
    found = [row[0] for row in lines([{"=name": text} for text in texts])]
    assert found == ["'=name", *(f"'{text}" for text in texts[:6]), *texts[6:9], "\\ud800"]
    assert lines([{"a": -1}])[1] == ["-1"], "a number is not a formula"


def test_csv_has_the_rows_of_the_json_reply_and_its_cursor(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        for number in range(7):
            payload = encode_event("connected", {"client": f"=c{number}"}, time_us=number, node="n")
            store.log(EVENTS_LOG).append(payload, topic=EVENT_TOPICS["connected"])
    with Console(tmp_path / "data") as console:
        whole = console.get("events", limit=5)
        found = console.http.get("/api/v1/events", params={"limit": 5, "format": "csv"})
        assert found.status_code == 200 and found.headers["content-type"] == MEDIA_TYPE
        assert found.headers["content-disposition"] == 'attachment; filename="events.csv"'
        assert found.headers[NEXT_HEADER] == str(whole["next"])
        rows = list(csv.DictReader(io.StringIO(found.text, newline="")))
        assert [int(row["offset"]) for row in rows] == [row["offset"] for row in whole["events"]]
        assert [row["client"] for row in rows] == ["'" + row["client"] for row in whole["events"]]
        console.get("events", format="json")
        console.get("events", 400, format="xml")
        console.get("overview", 400, format="csv")


def test_every_call_with_pages_is_a_table_and_names_a_field_of_its_reply() -> None:
    for route in ROUTES:
        fields = getattr(route.reply, "__struct_fields__", ())
        assert route.rows in ("", *fields), route.path
        assert route.rows or "next" not in fields, route.path
