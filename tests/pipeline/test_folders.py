"""The folder of a table shows the files of the newest commit, after a kill of the last publisher at any point."""

from pathlib import Path

from timestone_pipeline.data_file import DataFile
from timestone_pipeline.folders import Folders
from timestone_pipeline.ledger import State
from timestone_pipeline.tables import Table

TABLE = Table("clean", "x int", "day date")


def test_folder_is_brought_to_the_state_from_any_content(tmp_path: Path) -> None:
    data = tmp_path / "_files" / "clean"
    files = [DataFile("clean", f"day=2026-01-0{day}/{day}.parquet", 1, 1) for day in (1, 2, 3)]
    for one in files:
        (data / one.path).parent.mkdir(parents=True)
        (data / one.path).write_text(one.path)
    other = DataFile("bronze", "elsewhere.parquet", 1, 1)

    def shown(*chosen: DataFile) -> list[str]:
        Folders(tmp_path, [TABLE]).publish(
            State(files={(one.table, one.path): one for one in (*chosen, other)})
        )
        return sorted(
            str(path.relative_to(tmp_path / "clean")) for path in (tmp_path / "clean").rglob("*.parquet")
        )

    assert shown() == []
    assert shown(files[0], files[1]) == [files[0].path, files[1].path]
    (tmp_path / "clean" / files[0].path).unlink()
    assert shown(files[0], files[2]) == [files[0].path, files[2].path]
    assert (tmp_path / "clean" / files[2].path).read_text() == files[2].path
    assert (tmp_path / "clean" / files[2].path).stat().st_nlink == 2, "a link, not a copy"
