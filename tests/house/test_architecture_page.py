"""The map of files in docs/architecture.md is whole: it has every module of the engine and of the MQTT front."""

from os.path import normpath
from pathlib import Path

import pytest

from tests.house.pages import links
from tests.house.tree import tracked_files

PAGE = Path("docs/architecture.md")


def modules_of(folder: str) -> list[Path]:
    """Its modules, relative to ROOT: also compiled ones, but no `__init__.py`, which only names others."""
    return [
        path
        for path in tracked_files()
        if path.parts[0] == folder and path.suffix in {".py", ".pyx"} and path.name != "__init__.py"
    ]


@pytest.mark.parametrize("folder", ["timestone", "mqtt_front"])
def test_every_module_is_on_the_map(folder: str) -> None:
    mapped = {Path(normpath(PAGE.parent / target)) for _, target in links(PAGE)}
    missing = [str(path) for path in modules_of(folder) if path not in mapped]
    assert not missing, f"{PAGE}: give these a row, or a place in one:\n" + "\n".join(missing)
