"""The tables of docs/metrics.md have every metric of a real scrape, with its kind, labels and help, and no other."""

import re
from pathlib import Path

import pytest
from prometheus_client import Metric

from tests.house.tree import ROOT
from tests.support.scrape import families, scrape, server_with_traffic

ROW = re.compile(r"^\| `(?:timestone|process)_\w+` \| (?:counter|gauge|histogram|info) \|")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> list[Metric]:
    directory: Path = tmp_path_factory.mktemp("metrics-page")
    running, page = server_with_traffic(directory)
    with running:
        text = scrape(page)
        assert running.stop()[0] == 0
    return families(text)


def row(family: Metric) -> str:
    """Return the row of a table for a metric: the name of its samples, kind, labels, meaning."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    labels = sorted({name for sample in family.samples for name in sample.labels} - {"le"})
    shown = ", ".join(f"`{name}`" for name in labels)
    return f"| `{family.name}{suffix}` | {family.type} | {shown} | {family.documentation} |"


@pytest.mark.slow
def test_the_page_has_a_row_for_each_metric_and_no_other(scraped: list[Metric]) -> None:
    lines = (ROOT / "docs" / "metrics.md").read_text("utf-8").splitlines()
    on_page, expected = {line for line in lines if ROW.match(line)}, {row(family) for family in scraped}
    assert sorted(expected - on_page) == [], "add these rows"
    assert sorted(on_page - expected) == [], "remove these rows"


def test_no_label_holds_text_of_a_client(scraped: list[Metric]) -> None:
    used = {name for family in scraped for sample in family.samples for name in sample.labels}
    assert used <= {"le", "limit", "log", "partition", "reader", "reason", "version"}
