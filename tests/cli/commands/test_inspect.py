import json
import os
from pathlib import Path

import pytest

import timestone
from tests.cli.conditions import CONDITIONS, clean, damaged
from tests.cli.processes import timestone as command


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_state_has_its_verdict_and_exit_code_and_nothing_is_changed(
    tmp_path: Path, condition: str
) -> None:
    make, code, verdict = CONDITIONS[condition]
    make(tmp_path / "data")
    before = files_of(tmp_path)
    done = command("inspect", "data", "--deep", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, "")
    assert verdict in done.stdout.splitlines()[-1]
    found = command("inspect", "data", "--deep", "--json", cwd=tmp_path)
    assert found.returncode == code
    assert json.loads(found.stdout)["exit_code"] == code
    assert files_of(tmp_path) == before


def test_without_deep_sealed_segments_are_trusted_and_that_is_said(tmp_path: Path) -> None:
    damaged(tmp_path / "data")
    done = command("inspect", "data", cwd=tmp_path)
    assert done.returncode == 0
    assert "sealed segments not read; --deep does" in done.stdout


def test_json_uses_the_words_of_the_design(tmp_path: Path) -> None:
    clean(tmp_path / "data")
    found = json.loads(command("inspect", "data", "--json", cwd=tmp_path).stdout)
    (log,) = found["logs"]
    assert (log["log"], log["partition"], log["start_offset"], log["end_offset"]) == ("telemetry", 0, 0, 1500)
    assert [segment["base_offset"] for segment in log["segments"]] == [0, 1000]
    assert {segment["state"] for segment in log["segments"]} == {"sealed"}
    assert "entries" not in found


def test_one_log_can_be_chosen(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        for name, partition in (("a", 0), ("a", 1), ("b", 0)):
            store.log(name, partition)
    for words, expected in ((["a"], ["a-0", "a-1"]), (["a-1"], ["a-1"]), (["b"], ["b-0"])):
        found = json.loads(command("inspect", "data", "--json", "--log", *words, cwd=tmp_path).stdout)
        assert [f"{log['log']}-{log['partition']}" for log in found["logs"]] == expected
    done = command("inspect", "data", "--log", "c", cwd=tmp_path)
    assert done.returncode == 64, "a mistake in the command line says nothing about the store"
    assert done.stderr == "timestone inspect: no log named 'c' in this store; it has a-0, a-1, b-0\n"


def test_a_live_store_says_who_owns_it(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("a").append(b"x")
        done = command("inspect", "data", cwd=tmp_path)
    assert done.returncode == 0, "nothing is wrong"
    assert f"owned by process {os.getpid()}" in done.stdout
    assert "Nothing is wrong" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.touch()])
def test_a_path_that_is_not_a_store_is_wrong_usage(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "data")
    done = command("inspect", "data", cwd=tmp_path)
    assert done.returncode == 64
    assert done.stderr.startswith("timestone inspect: data is not a Timestone store")
    assert done.stderr.count("\n") == 1
