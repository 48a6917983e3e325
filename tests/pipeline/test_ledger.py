"""Commits appear completely or not at all, in order, and a snapshot has the same state as the commits that it
replaces."""

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


def test_another_process_sees_commits(tmp_path: Path) -> None:
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


def test_snapshot_has_the_same_state_without_old_replaced_files(tmp_path: Path) -> None:
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


def test_failed_snapshot_keeps_the_existing_one_of_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits that it replaces are gone, so without it all tables would be empty for a moment."""

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


def test_reader_overtaken_by_the_first_snapshot_reads_again(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    before = ledger.state()

    class Overtaken(Ledger):
        """Finds no snapshot, and before it lists the commits, a snapshot has replaced them."""

        def commits(self, after: int) -> list[Commit]:
            with ledger.writing():
                ledger.write_snapshot(forget_before_us=0)
            return super().commits(after)

    assert Overtaken(tmp_path).state() == before


def test_unfinished_commit_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    os.link(tmp_path / "000000000003.json", tmp_path / "000000000003.json.draft")
    with ledger.writing():
        ledger.append(commit(4, "e"))
        ledger.write_snapshot(forget_before_us=0)
    assert [path.name for path in tmp_path.glob("*.draft")] == []
    assert names(Ledger(tmp_path).state()) == ["c", "d", "e"]


def test_commit_number_is_assigned_once(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    with ledger.writing(), pytest.raises(PipelineError, match="commit 5 does not follow 3"):
        ledger.append(commit(5, "x"))
    (tmp_path / "000000000004.json").write_text("a writer that does not ask for the lock")
    with pytest.raises(FileExistsError):
        ledger.append(commit(4, "x"))


def test_commit_that_removes_a_missing_file_is_refused(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    with ledger.writing(), pytest.raises(DamagedLedger, match="commit 4 removes clean/a, which is not there"):
        ledger.append(commit(4, removed=("a",)))
    assert Ledger(tmp_path).state().number == 3


def test_partly_written_commit_is_ignored(tmp_path: Path) -> None:
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
def test_unreadable_commit_is_reported_by_name(tmp_path: Path, damage: bytes, complaint: str) -> None:
    filled(tmp_path)
    (tmp_path / "000000000002.json").write_bytes(damage)
    with pytest.raises(DamagedLedger, match=f"000000000002.json: .*{complaint}"):
        Ledger(tmp_path).state()


def test_missing_commit_is_reported_by_number(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "000000000002.json").unlink()
    with pytest.raises(DamagedLedger, match="commit 2 is missing, and 3 is there"):
        Ledger(tmp_path).state()


def test_commit_is_decoded_to_its_input() -> None:
    for one in (commit(1, "a", "b", newest_us=1), commit(2, removed=("a",))):
        assert Commit.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_lock_has_one_holder(tmp_path: Path) -> None:
    with (
        exclusively(tmp_path / "a.lock", wait=False),
        pytest.raises(Busy, match="another process is at it"),
        exclusively(tmp_path / "a.lock", wait=False, busy="another process is at it"),
    ):
        pass
    with exclusively(tmp_path / "a.lock", wait=False):
        pass
