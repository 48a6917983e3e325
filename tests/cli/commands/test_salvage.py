"""`timestone salvage` as a process: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest

import timestone
from tests.cli.conditions import CONDITIONS, clean, damaged
from tests.cli.processes import timestone as command


def test_sound_store(tmp_path: Path) -> None:
    clean(tmp_path / "data")
    done = command("salvage", "data", "rescued", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("telemetry-0: 1,500 records saved")
    assert done.stdout.splitlines()[-1] == "everything was saved: rescued"
    assert command("inspect", "rescued", "--deep", cwd=tmp_path).returncode == 0


def test_damaged_store_names_the_lost_offsets_and_the_copy_is_sound(tmp_path: Path) -> None:
    damaged(tmp_path / "data")
    done = command("salvage", "data", "rescued", cwd=tmp_path)
    assert done.returncode == 3
    assert "lost: offset" in done.stdout
    assert "the whole report is in rescued/salvage.json" in done.stdout
    assert command("inspect", "rescued", "--deep", cwd=tmp_path).returncode == 0
    written = json.loads((tmp_path / "rescued" / "salvage.json").read_text())
    printed = json.loads(command("salvage", "data", "again", "--json", cwd=tmp_path).stdout)
    assert written | {"target": "again"} == printed
    assert printed["exit_code"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_copy_is_sound_in_every_state(tmp_path: Path, condition: str) -> None:
    make, _, _ = CONDITIONS[condition]
    make(tmp_path / "data")
    done = command("salvage", "data", "rescued", cwd=tmp_path)
    assert done.returncode in (0, 3, 4)
    assert done.stderr == ""
    copied = command("inspect", "rescued", "--deep", cwd=tmp_path)
    assert copied.returncode == (3 if "the names of" in done.stdout else 0), "names are lost for good"


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    clean(tmp_path / "data")
    (tmp_path / "there").mkdir()
    for words, code, text in (
        (["data", "there"], 1, "there: is already there"),
        (["data", "data/inside"], 64, "expected a path outside of data"),
        (["nothing", "rescued"], 1, "does not exist"),
        (["data"], 64, "OUT"),
    ):
        done = command("salvage", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_owned_store_is_refused_with_its_owner(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data"):
        done = command("salvage", "data", "rescued", cwd=tmp_path)
    assert done.returncode == 1
    assert "is owned by process" in done.stderr
