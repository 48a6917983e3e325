"""`timestone restore` as a process."""

import json
from pathlib import Path

import pytest

import timestone
from tests.cli.commands.test_tier import fill
from tests.cli.processes import timestone as command
from timestone_cli.main import main


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"file://{tmp_path}/bucket"
    fill(tmp_path, url)
    return url


def test_a_restored_store_is_clean_and_says_the_next_step(url: str, tmp_path: Path) -> None:
    done = command("restore", url, "new", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("telemetry-0: offsets [0, 30), 3 segments, ")
    assert "complete: new" in done.stdout
    assert f"timestone tier claim {url} new" in " ".join(done.stdout.split())
    assert command("inspect", "new", "--deep", cwd=tmp_path).returncode == 0


def test_until_and_log_choose_what_is_restored(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with timestone.view(tmp_path / "data") as view:
        records = list(view.log("telemetry").reader("earliest").read())
    words = ["restore", url, str(tmp_path / "new"), "--json", "--log", "telemetry-0"]
    assert main([*words, "--until", "2020-01-01T00:00:00Z"]) == 0
    (log,) = json.loads(capsys.readouterr().out)["logs"]
    assert (log["start_offset"], log["end_offset"], log["fetched_segments"]) == (0, 0, 0)
    words[2] = str(tmp_path / "other")
    assert main([*words, "--until", "2999-01-01T00:00:00+02:00"]) == 0
    (log,) = json.loads(capsys.readouterr().out)["logs"]
    assert log["end_offset"] == 30 < len(records)


def test_what_cannot_be_done_is_one_line(url: str, tmp_path: Path) -> None:
    for words, code, text in (
        ([url, "data"], 1, "data: is not empty; restore to a new folder"),
        ([f"file://{tmp_path}/nothing", "new"], 64, "no log found there"),
        ([url, "new", "--log", "x"], 64, "no log 'x'"),
        ([url, "new", "--until", "yesterday"], 64, "expected an RFC 3339 time"),
        (["data", "new"], 64, "invalid URL 'data'"),
    ):
        done = command("restore", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, ""), words
        assert text in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "new").exists()
