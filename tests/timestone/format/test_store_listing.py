"""The folders of a store that are logs, and directories that are no stores."""

from pathlib import Path

import pytest

from timestone.disk.files import Files
from timestone.errors import NotAStore
from timestone.format.store_listing import listed_logs, logs_of_store


def test_logs_are_the_folders_with_the_name_of_one(tmp_path: Path) -> None:
    for name in ("b-0", "a-10", "a-9", "a-0-0", "a-0.deleted", "inbox", "-0", "a-01"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_bytes(b"")
    assert listed_logs(Files(), tmp_path) == [("a", 9), ("a", 10), ("a-0", 0), ("b", 0)]
    assert logs_of_store(Files(), tmp_path) == listed_logs(Files(), tmp_path)


def test_folder_with_files_of_others_alone_is_no_log(tmp_path: Path) -> None:
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


def test_folder_of_a_log_that_is_just_being_made_is_asked_about(tmp_path: Path) -> None:
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


def test_directory_without_logs_is_a_store_if_it_has_a_catalogue(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match=r"neither logs nor a catalog\.db"):
        logs_of_store(Files(), tmp_path)
    (tmp_path / "catalog.db").write_bytes(b"")
    assert logs_of_store(Files(), tmp_path) == []


def test_what_is_no_directory_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name, reason in (("file", "not a directory"), ("nothing", "does not exist")):
        with pytest.raises(NotAStore, match=reason):
            logs_of_store(Files(), tmp_path / name)
