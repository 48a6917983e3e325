"""What all commands print has one form: lines of 80 columns, times that say their zone, one key for one thing."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.cli.conditions import clean, damaged, orphaned, torn
from timestone import Pin, ReaderId
from timestone_cli.main import main

TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?\S*")
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty folder; returns its standard output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> str:
        main(words)
        return capsys.readouterr().out

    return run


def with_readers(path: Path) -> None:
    clean(path)
    with timestone.open(path) as store:
        store.log("telemetry").configure(
            retention_ms=604_800_000, retention_bytes=1 << 40, compression="zstd", compact=True
        )
        store.commit_readers({ReaderId("telemetry", 0, "a-reader-with-a-long-name" * 4): 7})
        store.commit_readers({ReaderId("telemetry", 0, "billing"): 10}, pin=Pin(max_bytes=1 << 40))


OUTPUTS = [
    (with_readers, ["inspect", "data"]),
    (with_readers, ["inspect", "data", "--deep"]),
    (with_readers, ["readers", "data"]),
    (with_readers, ["readers", "data", "--release", "billing"]),
    (with_readers, ["configure", "data"]),
    (with_readers, ["configure", "data", "telemetry"]),
    (with_readers, ["configure", "data", "telemetry", "retention_ms=7d", "retention_bytes=10GiB"]),
    (with_readers, ["backup", "data", "copy"]),
    (with_readers, ["delete", "data", "telemetry", "--yes"]),
    (with_readers, ["parquet", "data"]),
    (torn, ["inspect", "data"]),
    (orphaned, ["inspect", "data"]),
    (damaged, ["inspect", "data", "--deep"]),
    (damaged, ["salvage", "data", "rescued"]),
]


def case(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else getattr(value, "__name__", "")


@pytest.mark.parametrize(("make", "words"), OUTPUTS, ids=case)
def test_output_fits_80_columns_and_times_say_their_zone(
    make: Callable[[Path], None], words: list[str], run: Run, tmp_path: Path
) -> None:
    make(tmp_path / "data")
    printed = run(*words)
    assert printed
    too_long = [line for line in printed.splitlines() if len(line) > 80]
    assert [line for line in too_long if " " in line.strip()] == [], "only a path or a name may be longer"
    assert [found[0] for found in TIME.finditer(printed) if not found[0].rstrip(".;,)").endswith("Z")] == []


def of_log(found: dict[str, Any]) -> dict[str, Any]:
    """What a JSON object says about the one log: at the top, or in `logs`."""
    return found["logs"][0] if "logs" in found else found


def test_json_says_the_same_thing_under_the_same_key(run: Run, tmp_path: Path) -> None:
    with_readers(tmp_path / "data")
    inspected = json.loads(run("inspect", "data", "--json"))
    commands = {
        "readers": ["readers", "data"],
        "configure": ["configure", "data"],
        "backup": ["backup", "data", "copy"],
        "salvage": ["salvage", "data", "rescued"],
        "parquet": ["parquet", "data"],
        "delete": ["delete", "data", "telemetry", "--yes"],
    }
    for name, words in commands.items():
        found = json.loads(run(*words, "--json"))
        assert found["path"] == inspected["path"], name
        for key in found.keys() & inspected.keys() - {"logs", "readers", "exit_code"}:
            assert found[key] == inspected[key], f"{name}: {key}"
        for log in found.get("logs", [found]):
            for key in log.keys() & inspected["logs"][0].keys():
                assert log[key] == inspected["logs"][0][key], f"{name}: {key} of the log"
        for reader in found.get("readers", []):
            (same,) = (one for one in inspected["readers"] if one["name"] == reader["name"])
            for key in reader.keys() & same.keys():
                assert reader[key] == same[key], f"{name}: {key} of a reader"
        for file in found.get("files", []):
            segments = {one["base_offset"]: one for one in inspected["logs"][0]["segments"]}
            same = segments[file["base_offset"]]
            for key in file.keys() & same.keys():
                assert file[key] == same[key], f"{name}: {key} of a file"


def test_append_reports_with_the_keys_of_inspect(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    appended = json.loads(run("append", "data", "log", "--file", "lines", "--json"))
    (log,) = json.loads(run("inspect", "data", "--json"))["logs"]
    for key in appended.keys() - {"path", "ack", "unacknowledged"}:
        assert appended[key] == log[key], key
