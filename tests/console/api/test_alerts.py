from pathlib import Path

import timestone
from tests.support.console_client import Console, write_samples
from timestone_console.reading.conditions import CONDITIONS


def test_alerts_are_all_conditions_those_that_hold_first(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 60)
    with Console(tmp_path / "data") as console:
        found = console.get("alerts")["alerts"]
        assert len(found) == len(CONDITIONS)
        assert [one["name"] for one in found if one["state"] == "firing"] == ["TimestonePublishesDropped"]
        assert found[0]["state"] == "firing" and found[0]["since_us"] is not None
        assert console.get("events")["events"] == console.get("actions")["events"] == []


def test_actions_are_off_unless_switched_on(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("a").append(b"x")
    with Console(tmp_path / "data") as console:
        assert console.post("actions", {"action": "disconnect", "client": "pump"}, 403)["type"].endswith(
            "actions-off"
        )
