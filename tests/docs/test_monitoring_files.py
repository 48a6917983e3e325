"""The files under monitoring/, against promtool and a real scrape."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.scrape import families, scrape, server_with_traffic

FILES = ROOT / "monitoring"
NAME = re.compile(r"\b(?:timestone|process)_[a-z0-9_]+")
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed"
)
NOT_RECOMMENDED = "metric names should not contain abbreviated units"
"""What promtool says of counters named after a setting, such as `over_connects_per_s`."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of a real server in both formats."""
    directory: Path = tmp_path_factory.mktemp("monitoring")
    running, address = server_with_traffic(directory)
    with running:
        texts = scrape(address), scrape(address, "text/plain")
        assert running.stop()[0] == 0
    return texts


def alert_names() -> list[str]:
    return re.findall(r"- alert: (\w+)", (FILES / "alerts.yaml").read_text("utf-8"))


def expressions() -> dict[str, str]:
    """Return by place every expression of the dashboard and the rules."""
    dashboard = json.loads((FILES / "grafana.json").read_text("utf-8"))
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    variables = {one["name"]: one["query"] for one in dashboard["templating"]["list"]}
    rules = re.findall(r"expr: (.*)", (FILES / "alerts.yaml").read_text("utf-8"))
    return found | variables | dict(zip(alert_names(), rules, strict=True))


@pytest.mark.slow
def test_every_metric_of_dashboard_and_rules_is_in_a_real_scrape(page: tuple[str, str]) -> None:
    scraped = {sample.name for family in families(page[0]) for sample in family.samples}
    used = {(place, name) for place, text in expressions().items() for name in NAME.findall(text)}
    assert len({name for _, name in used}) > 25
    assert sorted((place, name) for place, name in used if name not in scraped) == []


def test_the_dashboard_takes_its_data_source_from_a_variable_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((FILES / "grafana.json").read_text("utf-8"))
    panels = dashboard["panels"]
    sources = {one["datasource"]["uid"] for one in panels if one["type"] != "row"}
    assert sources == {"${datasource}"}
    cells = [
        (x, y)
        for place in (one["gridPos"] for one in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells) and max(cells)[0] < 24
    assert len({one["id"] for one in panels}) == len(panels)


def test_every_alert_is_on_the_page_and_has_tests() -> None:
    monitoring = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    tests = (FILES / "alerts_test.yaml").read_text("utf-8")
    for name in alert_names():
        assert f"| `{name}` |" in monitoring
        # One that fires and one that does not.
        assert tests.count(f"alertname: {name}\n") == 2


@pytest.mark.slow
@promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", "alerts.yaml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yaml"],
    ],
)
def test_promtool_accepts_rules_and_configuration(arguments: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=FILES, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr


@pytest.mark.slow
@promtool
def test_promtool_finds_nothing_in_the_page_but_names_after_settings(page: tuple[str, str]) -> None:
    checked = ["promtool", "check", "metrics"]
    done = subprocess.run(checked, input=page[1], capture_output=True, text=True, timeout=60, check=False)
    found = (done.stdout + done.stderr).splitlines()
    assert [
        line for line in found if not re.fullmatch(rf"timestone_mqtt_over_\w+ {NOT_RECOMMENDED}", line)
    ] == []
