"""`timestone delete` as a process: it says what goes, asks, and leaves the other logs alone."""

import json
import shlex
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import COMMAND
from tests.cli.processes import timestone as command
from tests.support.stores import fill
from tests.support.terminal import OnTerminal
from timestone import ReaderId


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", 30)
    with timestone.open(tmp_path / "data") as store:
        store.log("other").append(b"x")
        store.commit_readers({ReaderId("telemetry", 0, "billing"): 10})
    return tmp_path / "data"


def logs(data: Path) -> list[tuple[str, int]]:
    with timestone.view(data) as view:
        return view.log_names()


def test_log_goes_and_what_it_was_is_said(data: Path, tmp_path: Path) -> None:
    done = command("delete", "data", "telemetry", "--yes", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("telemetry-0 is deleted: offsets [0, 30), ")
    assert done.stdout.endswith("1 named reader\n")
    assert logs(data) == [("other", 0)]
    assert command("inspect", "data", "--deep", cwd=tmp_path).returncode == 0
    assert not list(data.glob("telemetry*"))


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "left"), [("telemetry-0\n", 1), ("telemetry\n", 2), ("\4", 2)])
def test_a_user_at_a_terminal_is_asked(data: Path, tmp_path: Path, typed: str, left: int) -> None:
    with OnTerminal([*COMMAND, "delete", "data", "telemetry"], tmp_path) as terminal:
        terminal.wait_for("type telemetry-0 to delete it:")
        terminal.type(typed)
        terminal.wait_for("telemetry-0 is deleted" if left == 1 else "timestone delete: nothing was deleted")
        assert terminal.process.wait(60) == (0 if left == 1 else 1)
    assert len(logs(data)) == left


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("data", "telemetry"), 64, "cannot ask whether to delete telemetry-0 (offsets [0, 30), "),
        (("data", "telemetri", "--yes"), 1, "did you mean 'telemetry'?"),
        (("data", "telemetry", "--partition", "2", "--yes"), 1, "no partition 2"),
        (("nothing", "telemetry", "--yes"), 1, "not a Timestone store"),
    ],
)
def test_mistake_is_one_line_and_nothing_goes(
    data: Path, tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    for json_too in ((), ("--json",)):
        done = command("delete", *words, *json_too, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert len(logs(data)) == 2


def test_owner_is_named_and_its_log_stays(data: Path, tmp_path: Path) -> None:
    with timestone.open(data) as store:
        done = command("delete", "data", "telemetry", "--yes", cwd=tmp_path)
        assert done.returncode == 1
        assert "is owned by process" in done.stderr
        assert store.log("telemetry", create=False).end_offset == 30


def test_json_says_what_went_and_nothing_else(data: Path, tmp_path: Path) -> None:
    with timestone.view(data) as view:
        log = view.log("telemetry")
        log_id, file_bytes = log.id, sum(path.stat().st_size for path in log.folder.iterdir())
    done = command("delete", "data", "telemetry", "--yes", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "path": "data",
        "log": "telemetry",
        "partition": 0,
        "id": f"{log_id:016x}",
        "start_offset": 0,
        "end_offset": 30,
        "file_bytes": file_bytes,
        "readers": [{"log": "telemetry", "partition": 0, "name": "billing", "offset": 10}],
    }
    assert logs(data) == [("other", 0)]


@pytest.mark.slow
def test_the_question_is_not_part_of_the_result(data: Path, tmp_path: Path) -> None:
    script = f"exec {shlex.join([*COMMAND, 'delete', 'data', 'telemetry', '--json'])} > result"
    with OnTerminal(["sh", "-c", script], tmp_path) as terminal:
        terminal.wait_for("type telemetry-0 to delete it:")
        terminal.type("telemetry-0\n")
        assert terminal.process.wait(60) == 0
    assert json.loads((tmp_path / "result").read_text())["log"] == "telemetry"
