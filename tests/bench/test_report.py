import json
from pathlib import Path

import pytest

from timestone_bench.environment import probe_environment
from timestone_bench.report import print_report


def report(path: Path, *, as_json: bool) -> None:
    print_report("speed", {"a": 1.5}, probe_environment(path), ["a is 1.5"], as_json=as_json)


def test_json_is_one_object_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found.pop("environment")["cpu_count"] > 0
    assert found == {"benchmark": "speed", "result": {"a": 1.5}}


def test_lines_stand_below_what_the_machine_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "a is 1.5"
    assert lines[:-1] and "CPUs" in lines[0]
