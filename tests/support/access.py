"""Modes of the files that a test has made."""

import stat
from pathlib import Path


def check_modes(folder: Path, *, of_folders: int = 0o700, of_files: int = 0o600) -> None:
    """Check that a folder and all in it have these modes, apart from the setgid bit."""
    paths = [folder, *folder.rglob("*")]
    found = {path: stat.S_IMODE(path.stat().st_mode) & ~stat.S_ISGID for path in paths}
    assert found == {path: of_folders if path.is_dir() else of_files for path in paths}
