import json
from pathlib import Path

import pytest

from tests.cli.conditions import clean, damaged, unreadable
from tests.support.stores import value_of
from timestone.kernel.crc import crc32c
from timestone.repair.inspection import inspect_store
from timestone_cli.output.inspect_entries import entries_json, print_entries


def test_every_entry_is_listed_with_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean(tmp_path)
    print_entries(inspect_store(tmp_path))
    _, name, head, *lines = capsys.readouterr().out.splitlines()
    assert name == "telemetry-0"
    rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert [int(row["offset"]) for row in rows] == list(range(1500))
    row = rows[1002]
    assert row["position"] == str(2 * len(b"record 1000"))
    assert row["length"] == "11"
    assert row["topic"] == "'devices/2/state'"
    assert row["data_crc"] == f"{crc32c(value_of(1002)):08x}"
    assert row["entry"] == "holds"


def test_json_has_them_by_log_folder(tmp_path: Path) -> None:
    clean(tmp_path)
    found = json.loads(json.dumps(entries_json(inspect_store(tmp_path))))
    entries = found["telemetry-0"]
    assert [entry["offset"] for entry in entries] == list(range(1500))
    assert {entry["valid"] for entry in entries} == {True}
    assert entries[3]["topic"] == "devices/3/state"


def test_an_entry_that_does_not_hold_is_marked(tmp_path: Path) -> None:
    damaged(tmp_path)
    index = tmp_path / "telemetry-0" / f"{0:020d}.index"
    content = bytearray(index.read_bytes())
    content[4096 + 32 * 7] ^= 1
    index.write_bytes(content)
    entries = entries_json(inspect_store(tmp_path))["telemetry-0"]
    assert [entry["offset"] for entry in entries if not entry["valid"]] == [7]


def test_a_log_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    unreadable(tmp_path)
    assert entries_json(inspect_store(tmp_path)) == {}
