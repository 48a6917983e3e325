"""Commits appear whole or not at all, in order, and a snapshot says the same as what it replaces."""

import errno
import json
import os
from pathlib import Path

import pytest

from timestone_pipeline.data_file import DataFile
from timestone_pipeline.errors import Busy, DamagedLedger, PipelineError
from timestone_pipeline.ledger import Commit, Ledger, State, exclusively
from timestone_pipeline.progress import Progress


def file(name: str, table: str = "clean") -> DataFile:
    return DataFile(table, name, 3, 1000, {"ts": (5, 9)})


def commit(number: int, *added: str, removed: tuple[str, ...] = (), newest_us: int | None = None) -> Commit:
    progress = None if newest_us is None else Progress(newest_us=newest_us)
    gone = tuple(("clean", name) for name in removed)
    return Commit(number, "batch", number * 100, tuple(map(file, added)), gone, progress)


def filled(folder: Path) -> Ledger:
    ledger = Ledger(folder)
    with ledger.writing():
        ledger.append(commit(1, "a", "b", newest_us=1))
        ledger.append(commit(2, "c", newest_us=2))
        ledger.append(commit(3, "d", removed=("a", "b")))
    return ledger


def names(state: State) -> list[str]:
    return [one.path for one in state.of("clean")]


def test_another_process_sees_what_was_committed(tmp_path: Path) -> None:
    written, read = filled(tmp_path), Ledger(tmp_path)
    assert read.state() == written.state()
    assert names(read.state()) == ["c", "d"]
    assert read.state().replaced == {("clean", "a"): 300, ("clean", "b"): 300}
    assert read.state().progress.newest_us == 2
    assert read.state().of("bronze") == []
    with written.writing():
        written.append(commit(4, "e"))
    assert names(read.state()) == ["c", "d", "e"]
    assert [one.number for one in read.commits(2)] == [3, 4]


def test_a_snapshot_says_the_same_and_forgets_what_was_replaced_long_ago(tmp_path: Path) -> None:
    ledger, behind = filled(tmp_path), Ledger(tmp_path)
    behind.state()
    with ledger.writing():
        ledger.append(commit(4, "e", removed=("c",)))
        before = ledger.state()
        ledger.write_snapshot(forget_before_us=400)
        ledger.append(commit(5, "f"))
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "000000000004.snapshot.json",
        "000000000005.json",
    ]
    for reader in (ledger, behind, Ledger(tmp_path)):
        assert names(reader.state()) == ["d", "e", "f"]
        assert reader.state().replaced == {("clean", "c"): 400}
        assert reader.state().progress == before.progress


def test_a_snapshot_that_cannot_be_written_leaves_the_one_of_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits that it stands for are gone, so for a moment without it all tables would be empty."""

    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "the disk fails")

    ledger = filled(tmp_path)
    with ledger.writing():
        before = ledger.write_snapshot(forget_before_us=0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fails)
            with pytest.raises(OSError, match="the disk fails"):
                ledger.write_snapshot(forget_before_us=0)
        assert Ledger(tmp_path).state() == before
        assert ledger.write_snapshot(forget_before_us=0) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000003.snapshot.json", "COMMIT.lock"]


def test_a_reader_that_is_overtaken_by_the_first_snapshot_looks_again(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    before = ledger.state()

    class Overtaken(Ledger):
        """Finds no snapshot, and before it looks for commits, there is one in their place."""

        def commits(self, after: int) -> list[Commit]:
            with ledger.writing():
                ledger.write_snapshot(forget_before_us=0)
            return super().commits(after)

    assert Overtaken(tmp_path).state() == before


def test_a_draft_of_somebody_who_was_killed_is_cleared_away(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    os.link(tmp_path / "000000000003.json", tmp_path / "000000000003.json.draft")
    with ledger.writing():
        ledger.append(commit(4, "e"))
        ledger.write_snapshot(forget_before_us=0)
    assert [path.name for path in tmp_path.glob("*.draft")] == []
    assert names(Ledger(tmp_path).state()) == ["c", "d", "e"]


def test_a_number_is_given_once(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    with ledger.writing(), pytest.raises(PipelineError, match="commit 5 does not follow 3"):
        ledger.append(commit(5, "x"))
    (tmp_path / "000000000004.json").write_text("somebody who does not ask for the lock")
    with pytest.raises(FileExistsError):
        ledger.append(commit(4, "x"))


def test_a_commit_that_removes_what_is_not_there_is_refused(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    with ledger.writing(), pytest.raises(DamagedLedger, match="commit 4 removes clean/a, which is not there"):
        ledger.append(commit(4, removed=("a",)))
    assert Ledger(tmp_path).state().number == 3


def test_a_half_written_commit_is_none(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "000000000004.json.draft").write_text('{"version": 1, "num')
    assert Ledger(tmp_path).state().number == 3


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (b"{", "not a commit"),
        (b"\xff\xff\xff\xff", "not a commit"),
        (b"[" * 100_000, "not a commit"),
        (b'{"version": 2}', "its format is 2"),
        (b'{"version": 1}', "not a commit"),
        (b'{"version": 1, "number": 1e999, "progress": null}', "not a commit"),
        (
            b'{"version": 1, "number": 2, "action": "", "time_us": 0, "progress": null, "added": ['
            b'{"table": "a", "path": "b", "rows": 1, "bytes": 1, "bounds": []}]}',
            "not a commit",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, damage: bytes, complaint: str) -> None:
    filled(tmp_path)
    (tmp_path / "000000000002.json").write_bytes(damage)
    with pytest.raises(DamagedLedger, match=f"000000000002.json: .*{complaint}"):
        Ledger(tmp_path).state()


def test_a_missing_commit_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "000000000002.json").unlink()
    with pytest.raises(DamagedLedger, match="commit 2 is missing, and 3 is there"):
        Ledger(tmp_path).state()


def test_commits_survive_a_file() -> None:
    for one in (commit(1, "a", "b", newest_us=1), commit(2, removed=("a",))):
        assert Commit.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with (
        exclusively(tmp_path / "a.lock", wait=False),
        pytest.raises(Busy, match="somebody is at it"),
        exclusively(tmp_path / "a.lock", wait=False, busy="somebody is at it"),
    ):
        pass
    with exclusively(tmp_path / "a.lock", wait=False):
        pass
