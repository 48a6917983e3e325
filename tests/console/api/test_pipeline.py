from pathlib import Path

from tests.support.console_client import Console
from tests.support.stores import fill


def test_console_without_tables_says_so(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        for path in ("pipeline", "pipeline/dead-letters"):
            assert "without the tables" in console.get(path, 404)["detail"]
