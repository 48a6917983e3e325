from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.console_client import Console
from tests.support.stores import fill
from timestone_console.config import Role


class TwoLetters:
    """Tables with two dead letters."""

    def pipeline(self) -> Mapping[str, Any]:
        return {
            "path": "tables",
            "tables": [{"table": "clean", "rows": 1, "files": 1, "file_bytes": 9}],
            "logs": [{"log": "mqtt", "partition": 0, "offset": 1, "synced_offset": None, "lag": None}],
            "reasons": {"not_json": 2},
            "late": 0,
            "batches": 1,
            "last_commit_us": None,
            "newest_us": None,
            "closed_us": {"1": 5},
            "is_exact": True,
            "is_reprocess_interrupted": False,
            "history": [{"number": 1, "time_us": 5, "kind": "write"}],
        }

    def dead_letters(self, after: str, limit: int, reason: str | None) -> Mapping[str, Any]:
        if after == "gone":
            raise ValueError("the tables were compacted")
        letter = {"log": "mqtt", "partition": 0, "received_us": 7, "topic": "a", "problem": "not_json"}
        letters = [{**letter, "offset": 1, "value": b"\xff\x00"}, {**letter, "offset": 0, "value": b"{bro"}]
        return {"letters": letters, "next": None, "reasons": {"not_json": 2}, "fields": {"device": "string"}}


def test_console_without_tables_says_so(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        for path in ("pipeline", "pipeline/dead-letters"):
            assert "without the tables" in console.get(path, 404)["detail"]


def test_pipeline_and_its_dead_letters_are_shown_with_their_bytes(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data", tables=TwoLetters()) as console:
        assert console.get("pipeline")["reasons"] == {"not_json": 2}
        found = console.get("pipeline/dead-letters")
        newest, other = found["letters"]
        assert (newest["hex"], newest["value"]["kind"], newest["same_reason"]) == ("ff00", "binary", 2)
        assert other["value"]["text"] == "{bro" and found["fields"] == {"device": "string"}
        console.get("pipeline/dead-letters", 410, after="gone")


def test_bytes_of_a_topic_that_a_user_may_not_read_are_hidden(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data", tables=TwoLetters(), login=False, anonymous=Role.READER) as console:
        found = console.get("pipeline/dead-letters")["letters"]  # no server says what may be read
        assert [(one["value"], one["hex"]) for one in found] == [(None, None)] * 2
