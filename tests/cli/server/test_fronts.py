import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.cli.line_front import LineFront, LineSettings
from tests.cli.plugin import install_front
from timestone.fronts import Front
from timestone_cli.errors import CommandError
from timestone_cli.server.fronts import installed_fronts


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    installed_fronts.cache_clear()
    yield
    installed_fronts.cache_clear()


def test_fronts_are_found_by_their_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_front(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    fronts = installed_fronts()
    assert list(fronts) == ["flight", "line", "mqtt"]
    assert fronts["line"] is LineFront
    for front in fronts.values():
        assert callable(front.settings)


def test_nothing_installed_is_an_empty_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed_fronts() == {}


@pytest.mark.parametrize("target", ["no_such_module:Front", "tests.cli.line_front:NoSuchFront"])
def test_a_front_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    install_front(tmp_path, name="broken", target=target)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(CommandError, match=r"'broken' .* cannot be loaded"):
        installed_fronts()


def test_the_test_front_is_a_front(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        front: Front = LineFront(store, LineSettings(), log=logging.getLogger("test"))
    assert isinstance(front, Front)
