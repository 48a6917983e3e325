"""`timestone backup` as a process, beside the owner of the store."""

import json
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import timestone as command
from timestone_cli.main import main
from timestone_cli.output.progress import ProgressLine


def segments_of(folder: Path) -> dict[str, int]:
    sizes = [path.stat().st_size for path in folder.glob("*.segment")]
    return {"segment_count": len(sizes), "stored_bytes": sum(sizes)}


def test_backup_beside_the_owner(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append_many([b"x" * 100] * 20)
        done = command("backup", "data", "copy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["a-0: 1 segment, 2.0 KiB", "complete: copy"]
    assert command("read", "copy", "a", "--format", "raw", cwd=tmp_path).stdout == "x" * 2000


def test_log_that_is_deleted_during_the_backup_is_reported_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        for name in "ab":
            store.log(name).append(b"x")

        def delete_behind_the_first(line: ProgressLine, text: str) -> None:
            if text.startswith("a-0"):
                store.delete_log("b")

        monkeypatch.setattr(ProgressLine, "show", delete_behind_the_first)
        words = ["backup", str(tmp_path / "data")]
        assert main([*words, str(tmp_path / "copy")]) == 0
        assert capsys.readouterr().out.splitlines()[:2] == [
            "a-0: 1 segment, 1 byte",
            "b-0: left out, deleted during the backup",
        ]
        store.log("b")
        assert main([*words, str(tmp_path / "another"), "--json"]) == 0
        logs = json.loads(capsys.readouterr().out)["logs"]
        assert [(log["log"], log["is_deleted"]) for log in logs] == [("a", False), ("b", True)]


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a")
    for words, code, text in (
        (["data", "data/copy"], 64, "invalid target data/copy: expected a path outside of data"),
        (["data", "data"], 64, "invalid target data: expected a path outside of data"),
        (["nowhere", "copy"], 1, "nowhere is not a Timestone store: it does not exist"),
    ):
        done = command("backup", *words, cwd=tmp_path)
        assert done.returncode == code
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_json_says_what_was_copied_and_nothing_else(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append_many([b"x" * 100] * 20)
        store.log("b-c", 3)
        done = command("backup", "data", "copy", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    empty = {"segment_count": 0, "stored_bytes": 0, "is_deleted": False}
    assert json.loads(done.stdout) == {
        "path": "data",
        "target": "copy",
        "logs": [
            {**empty, "log": "a", "partition": 0, "segment_count": 1, "stored_bytes": 2000},
            {**empty, "log": "b-c", "partition": 3, **segments_of(tmp_path / "copy" / "b-c-3")},
        ],
    }
    refused = command("backup", "data", "copy", "--json", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "timestone backup: copy: is already there\n"
