from pathlib import Path

import timestone
from tests.support.console_client import Console, write_samples
from timestone.metrics.records import ACTION, ACTIONS_TOPIC, EVENTS_LOG, encode_event
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


def test_action_whose_server_was_killed_before_its_end_stays_begun(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log(EVENTS_LOG)
        for number, state in ((1, "begun"), (1, "done"), (2, "begun")):  # and then kill -9
            facts = {"action": "roll", "number": number, "by": {"via": "console"}, "state": state}
            log.append(encode_event(ACTION, facts, time_us=number, node="n"), topic=ACTIONS_TOPIC)
    with Console(tmp_path / "data") as console:
        found = [one["facts"] for one in console.get("actions")["events"]]
        assert [(one["number"], one["state"]) for one in found] == [(2, "begun"), (1, "done"), (1, "begun")]
