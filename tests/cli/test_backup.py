"""`timestone backup` as a process, beside the owner of the store."""

from pathlib import Path

import timestone
from tests.cli.processes import timestone as command


def test_backup_beside_the_owner(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a").append_many([b"x" * 100] * 20)
        done = command("backup", "data", "copy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["a-0: 1 segment, 2.0 KiB", "complete: copy"]
    assert command("read", "copy", "a", "--format", "raw", cwd=tmp_path).stdout == "x" * 2000


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        store.log("a")
    for words, code, text in (
        (["data", "data/copy"], 64, "data/copy is in data: a backup never changes what it reads"),
        (["data", "data"], 64, "data is in data"),
        (["nowhere", "copy"], 1, "nowhere is not a Timestone store: it does not exist"),
    ):
        done = command("backup", *words, cwd=tmp_path)
        assert done.returncode == code
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
