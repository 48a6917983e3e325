import shutil
from pathlib import Path

import pytest

import timestone
from tests.support.console_client import Console
from timestone.config import LogConfig
from timestone.view import view_store
from timestone_console.reading import log_damage
from timestone_console.reading.log_damage import LogDamage


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the store of a killed process, with logs of four segments. A look examines all of them, however busy the
    machine is."""
    monkeypatch.setattr(log_damage, "_LOOK_S", 60.0)
    with timestone.open(tmp_path / "data") as opened:
        for name in ("intact", "torn", "cut", "half", "nameless"):
            log = opened.log(name, config=LogConfig(segment_entries=10))
            for number in range(35):
                log.append(b"%d" % number, topic="a/b")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    return tmp_path / "copy"


def damage(store: Path) -> None:
    """Damage all logs but one, each in another way."""
    last = sorted((store / "torn-0").glob("*.segment"))[-1]
    with last.open("ab") as file:
        file.write(b"torn")
    sealed = sorted((store / "cut-0").glob("*.segment"))[0]
    with sealed.open("r+b") as file:
        file.truncate(sealed.stat().st_size - 5)
    sorted((store / "half-0").glob("*.segment"))[1].unlink()
    (store / "nameless-0" / "topics").unlink()


def test_each_kind_of_damage_is_named_and_an_intact_log_is_not(store: Path) -> None:
    with view_store(store) as view:
        assert LogDamage(view).look(owned=False) == []
        damage(store)
        found = LogDamage(view).look(owned=False)
        assert [(one.text, one.is_loss) for one in found] == [
            ("cut-0: 1 segment damaged", True),
            ("half-0: 1 segment without one of its two files, 10 offsets missing", True),
            ("nameless-0: the topic dictionary is missing", True),
            ("torn-0: 1 segment with a torn tail", False),
        ]
        assert "torn" not in [one.log for one in LogDamage(view).look(owned=True)], "its owner writes"


def test_look_ends_in_time_and_the_next_one_continues(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(store)
    monkeypatch.setattr(log_damage, "_LOOK_S", 0.0)
    with view_store(store) as view:
        examined = LogDamage(view)
        assert [len(examined.look(owned=False)) for _ in range(6)] == [1, 2, 2, 3, 4, 4]
        shutil.rmtree(store / "cut-0")
        assert len(examined.look(owned=False)) == 3


def test_damage_that_the_scrubber_found_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with timestone.open(path) as opened:
        log = opened.log("mqtt", config=LogConfig(segment_entries=10))
        for number in range(35):
            log.append(b"%d" % number, topic="a/b")
    first = sorted((path / "mqtt-0").glob("*.segment"))[0]
    with first.open("r+b") as file:
        file.write(b"\xff")
    with view_store(path) as view:
        assert LogDamage(view).look(owned=False) == [], "sealed segments are not read"
        with timestone.open(path) as opened:
            opened.scrub()
        (found,) = LogDamage(view).look(owned=False)
        assert found.is_loss and found.found_us is not None
        assert found.text.startswith("mqtt-0: the scrubber found damage: ")


def test_damaged_log_is_wrong_on_the_overview(store: Path) -> None:
    damage(store)
    with Console(store) as console:
        wrong = [one for one in console.get("overview")["wrong"] if one["log"] is not None]
        assert [(one["log"], one["severity"]) for one in wrong] == [
            ("cut", "critical"), ("half", "critical"), ("nameless", "critical"), ("torn", "warning"),
        ]  # fmt: skip
