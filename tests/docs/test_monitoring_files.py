"""The files under monitoring/, against promtool and a real scrape."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Running, timestone
from tests.cluster.etcd_server import etcd_server
from tests.house.tree import ROOT
from tests.support.ports import reserved_port
from tests.support.scrape import families, scrape, server_with_traffic
from tests.support.waiting import wait_for

FILES = ROOT / "monitoring"
NAME = re.compile(r"\b(?:timestone|process)_[a-z0-9_]+")
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed"
)


def answer_of(port: int, path: str, **parameters: str) -> Any:
    """Return what the API of a Prometheus answers; nothing while it does not."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]
    except OSError:
        return {}


def check_prometheus(port: int) -> None:
    """Wait for a scrape, and evaluate every expression of the rules and of the dashboard."""
    query = "timestone_mqtt_publishes_received_total"
    wait_for(lambda: bool(answer_of(port, "query", query=query).get("result")))
    (target,) = answer_of(port, "targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    (found,) = answer_of(port, "query", query=query)["result"]
    assert found["value"][1] == "1"
    rules = [one for group in answer_of(port, "rules")["groups"] for one in group["rules"]]
    assert {one["name"] for one in rules} == set(alert_names())
    for place, expression in expressions().items():
        if not expression.startswith("label_values("):  # a function of Grafana
            evaluated = answer_of(port, "query", query=re.sub(r"\$\w+", "5m", expression))
            assert evaluated.get("resultType") == "vector", place


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus (Debian: prometheus) is not installed"
)
def test_a_real_prometheus_scrapes_a_real_server_and_evaluates_the_rules(tmp_path: Path) -> None:
    running, address = server_with_traffic(tmp_path)
    settings = (FILES / "prometheus.yml").read_text("utf-8")
    assert settings.count("127.0.0.1:9464") == 2 and "scrape_interval: 15s" in settings
    settings = settings.replace("127.0.0.1:9464", address).replace("interval: 15s", "interval: 1s")
    (tmp_path / "prometheus.yml").write_text(settings)
    shutil.copy(FILES / "alerts.yaml", tmp_path)
    words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=history"]
    with reserved_port() as port, running:
        listen = f"--web.listen-address=127.0.0.1:{port}"
        with subprocess.Popen([*words, listen], cwd=tmp_path, stderr=subprocess.DEVNULL) as prometheus:
            try:
                check_prometheus(port)
            finally:
                prometheus.terminate()


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


def names_used() -> set[str]:
    """Return the metrics that the dashboard or a rule names."""
    return {name for text in expressions().values() for name in NAME.findall(text)}


@pytest.mark.slow
def test_every_metric_of_dashboard_and_rules_is_in_a_real_scrape(page: tuple[str, str]) -> None:
    scraped = {sample.name for family in families(page[0]) for sample in family.samples}
    used = {name for name in names_used() if not name.startswith("timestone_cluster_")}
    assert len(used) > 25
    assert sorted(used - scraped) == []


@pytest.mark.slow
@pytest.mark.cluster
def test_every_metric_of_a_cluster_in_dashboard_and_rules_is_in_a_scrape_of_a_node(tmp_path: Path) -> None:
    with etcd_server(tmp_path / "etcd") as server:
        url, ready = f"etcd://{server.endpoint}/plant", tmp_path / "ready.json"
        made = timestone("cluster", "init", url, "--shards", "1", "--replicas", "1")
        assert made.returncode == 0, made
        options = ["--cluster-name", "a", "--metrics", "127.0.0.1:0", "--ready-file", str(ready)]
        with Running("serve", "--cluster", url, *options, cwd=tmp_path) as node:
            page = scrape(str(node.wait_for_json(ready)["metrics"]))
            assert node.stop()[0] == 0
    scraped = {sample.name for family in families(page) for sample in family.samples}
    used = {name for name in names_used() if name.startswith("timestone_cluster_")}
    assert used and sorted(used - scraped) == []


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
def test_promtool_finds_nothing_in_the_page_of_a_server(page: tuple[str, str]) -> None:
    checked = ["promtool", "check", "metrics"]
    done = subprocess.run(checked, input=page[1], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
