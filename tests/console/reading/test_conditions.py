"""The table of conditions: one source for the rules of Prometheus, the page of alerts and the documentation."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.house.tree import ROOT
from tests.support.console_client import write_samples
from timestone.metrics.metric import Metric, metric
from timestone.view import view_store
from timestone_console.reading.conditions import CONDITIONS, alert_rules, findings
from timestone_console.reading.samples import Samples

RULES = (ROOT / "monitoring" / "alerts.yaml").read_text("utf-8")
PAGE = (ROOT / "docs" / "monitoring.md").read_text("utf-8")


def test_rules_for_prometheus_are_made_of_the_table() -> None:
    assert alert_rules() == RULES, "run: make alerts"


def test_page_has_the_table() -> None:
    rows = re.findall(r"^\| `(Timestone\w+)` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert rows == [(one.name, one.when, one.then) for one in CONDITIONS]


def firing(path: Path) -> dict[str, Any]:
    with view_store(path) as view:
        return {one.name: one for one in findings(Samples(view)) if one.is_firing}


def test_condition_fires_by_samples_and_names_its_figure_and_since_when(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 60)
    found = firing(tmp_path / "data")
    assert set(found) == {"TimestonePublishesDropped"}
    dropped = found["TimestonePublishesDropped"]
    assert "quota_exceeded" in dropped.text and dropped.value == pytest.approx(30, abs=2)
    assert dropped.since_us < time.time_ns() // 1000 - 4 * 60_000_000


def test_server_that_records_nothing_is_down(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("mqtt").append(b"x")
    assert set(firing(tmp_path / "data")) == {"TimestoneDown"}


@pytest.mark.parametrize(("minutes", "fires"), [(8, True), (3, False)])
def test_replica_that_stays_out_is_found_once_it_has_lasted(
    tmp_path: Path, minutes: int, fires: bool
) -> None:
    def alarms(number: int) -> Metric:
        return metric("timestone_cluster_alarms", "unknown", "Out.", 2 * (number > 60 - minutes * 6))

    write_samples(tmp_path / "data", 61, more=alarms)
    found = firing(tmp_path / "data")
    assert ("TimestoneReplicaOut" in found) is fires
    if fires:
        assert found["TimestoneReplicaOut"].text.startswith("2 replicas of this node stay out")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90, "90 s"), (600, "10 minutes"), (7 * 3600, "7 hours"), (40 * 86_400, "40 days")],
)
def test_server_that_stopped_is_down_for_a_time_in_words(tmp_path: Path, seconds: int, text: str) -> None:
    write_samples(tmp_path / "data", 3)
    with view_store(tmp_path / "data") as view:
        samples = Samples(view)
        at_us = samples.last()[0].time_us + seconds * 1_000_000
        down = next(one for one in findings(samples, at_us) if one.name == "TimestoneDown")
    assert down.is_firing and down.text == f"the server has recorded nothing for {text}"
