"""The public surface of each package is a list: exact, each name once, and in the reference page."""

import ast
import importlib
import tomllib
from dataclasses import fields

import pytest

from tests.house.tree import PACKAGES, ROOT


def imported_names(folder: str) -> list[str]:
    """The public names that `<folder>/__init__.py` makes: imports, also those that wait until they are used,
    definitions and assignments at its top level."""
    names: list[str] = []
    waiting = list(ast.parse((ROOT / folder / "__init__.py").read_text("utf-8")).body)
    while waiting:
        match waiting.pop(0):
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                waiting += body
            case ast.ImportFrom(module="typing"):
                pass
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [alias.asname or alias.name.split(".")[0] for alias in aliases]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Assign(targets=targets):
                names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


@pytest.mark.parametrize("folder", PACKAGES)
def test_all_lists_exactly_the_public_names(folder: str) -> None:
    package = importlib.import_module(PACKAGES[folder])
    offered = imported_names(folder)
    listed = list(getattr(package, "__all__", []))
    if not listed:
        assert folder != "timestone"
        return
    assert len(set(listed)) == len(listed), "a name twice"
    assert sorted(listed) == sorted(offered)
    assert [name for name in listed if not hasattr(package, name)] == []
    for name in listed:
        assert hasattr(package, name)


def test_reference_page_lists_the_public_names_of_the_engine() -> None:
    import timestone

    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert [name for name in timestone.__all__ if f"`{name}" not in page] == []


def test_version_is_the_same_everywhere() -> None:
    import timestone

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert timestone.__version__ == project["version"]


def test_reference_page_lists_every_setting_of_the_engine() -> None:
    import timestone

    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    settings = [
        field.name for config in (timestone.StoreConfig, timestone.LogConfig) for field in fields(config)
    ]
    assert [name for name in settings if f"| `{name}` |" not in page] == []
