"""The choice between the two text formats; the formats themselves are parsed in `test_metrics`."""

import pytest

from timestone.metrics.metric import Metric
from timestone_cli.server.exposition import exposition, named, wants_openmetrics


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ('application/openmetrics-text;version="0.0.1"', True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("Application/OpenMetrics-Text;q=0.5,text/plain;q=0.5", True),
        ("application/openmetrics-text;q=0.4,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=high,*/*;q=0.1", False),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3",
            True,
        ),
    ],
)
def test_the_header_accept_chooses_the_format(accept: str, chosen: bool) -> None:
    assert wants_openmetrics(accept) == chosen


def test_a_metric_without_samples_has_no_lines() -> None:
    empty = named("line", [Metric("ends", "counter", "Ends.", [])])
    assert exposition(empty, openmetrics=False) == ""
    assert exposition(empty, openmetrics=True) == "# EOF\n"
