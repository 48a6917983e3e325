"""Which folders of a store are logs, and which directories are not stores."""

from pathlib import Path

import pytest

from timestone.disk.files import Files
from timestone.errors import NotAStore
from timestone.format.store_listing import foreign_name, is_listed, listed_logs, logs_of_store


def test_listing_has_the_folders_with_the_name_of_a_log(tmp_path: Path) -> None:
    for name in ("b-0", "a-10", "a-9", "a-0-0", "a-0.deleted", "inbox", "-0", "a-01"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_bytes(b"")
    assert listed_logs(Files(), tmp_path) == [("a", 9), ("a", 10), ("a-0", 0), ("b", 0)]
    assert logs_of_store(Files(), tmp_path) == listed_logs(Files(), tmp_path)


def test_log_is_listed_without_a_look_at_the_others(tmp_path: Path) -> None:
    (tmp_path / "mqtt-3").mkdir()
    assert is_listed(Files(), tmp_path, ("mqtt", 3))
    for log in (("mqtt", 0), ("other", 3), ("../mqtt", 3), ("mqtt-3", 0), ("", 3), ("mqtt", -3)):
        assert not is_listed(Files(), tmp_path, log)


def test_folder_with_foreign_files_only_is_not_a_log(tmp_path: Path) -> None:
    for name, file in (
        ("release-2", "README"),
        ("export-2026", "rows.csv"),
        ("made-0", "topics.tmp"),
        ("lost-0", f"{7:020d}.index"),
        ("whole-0", "topics"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"")
    (tmp_path / "whole-0" / ".DS_Store").write_bytes(b"")
    assert listed_logs(Files(), tmp_path) == [("lost", 0), ("made", 0), ("whole", 0)]


def test_folder_of_an_incomplete_log_is_looked_up_in_the_catalogue(tmp_path: Path) -> None:
    for name, file in (
        ("empty-0", None),
        ("begun-0", "topics.tmp"),
        ("lost-0", f"{7:020d}.index"),
        ("whole-0", "topics"),
    ):
        (tmp_path / name).mkdir()
        if file:
            (tmp_path / name / file).write_bytes(b"")
    asked: list[tuple[str, int]] = []

    def is_made(log: tuple[str, int]) -> bool:
        asked.append(log)
        return log == ("begun", 0)

    assert listed_logs(Files(), tmp_path, is_made) == [("begun", 0), ("lost", 0), ("whole", 0)]
    assert sorted(asked) == [("begun", 0), ("empty", 0)]


def test_directory_without_logs_is_a_store_when_it_has_a_catalogue(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match=r"neither logs nor a catalog\.db"):
        logs_of_store(Files(), tmp_path)
    (tmp_path / "catalog.db").write_bytes(b"")
    assert logs_of_store(Files(), tmp_path) == []


def test_path_is_refused_when_it_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name, reason in (("file", "not a directory"), ("nothing", "does not exist")):
        with pytest.raises(NotAStore, match=reason):
            logs_of_store(Files(), tmp_path / name)


@pytest.mark.parametrize(
    ("present", "foreign"),
    [
        ([], None),
        (["lost+found", ".hidden"], None),
        (["LOCK", "notes.txt"], None),
        (["catalog.db-journal", "notes.txt"], None),
        (["telemetry-0/topics", "notes.txt"], None),
        (["notes.txt", ".hidden"], "notes.txt"),
        (["release-2/README"], "release-2"),
    ],
)
def test_directory_holds_something_else_than_a_store(
    present: list[str], foreign: str | None, tmp_path: Path
) -> None:
    for name in present:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert foreign_name(Files(), tmp_path) == foreign
