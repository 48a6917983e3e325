import math
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import Gauge, Histogram, Sum

from timestone.metrics.histogram import BOUNDS_S
from timestone.metrics.metric import series_name
from timestone.metrics.records import Durations, Sample
from timestone_cli.live.otlp import metrics_of, spans_of, split_series


def test_series_are_split_into_the_labels_that_they_were_made_of() -> None:
    labels = {"log": 'a"b\\c\nd', "partition": "0", "reader": 'x,y="z"}'}
    assert split_series(series_name("lag", labels)) == ("lag", labels)
    assert split_series("plain_total") == ("plain_total", {})


def test_sample_becomes_sums_gauges_and_histograms_with_the_same_names() -> None:
    counts = (1, *[0] * (len(BOUNDS_S) - 1), 2)
    values = {"publishes_total": 7, 'lag{reader="a"}': 1, 'lag{reader="b"}': 2, "free_bytes": 5}
    sample = Sample(2_000, 1_000, "n", 10, values, {"flush_seconds": Durations(counts, 0.5)})
    found = {one.name: one for one in metrics_of([sample])}
    total = found["publishes_total"].data
    assert isinstance(total, Sum) and total.is_monotonic
    point = total.data_points[0]
    assert (point.start_time_unix_nano, point.time_unix_nano, point.value) == (1_000_000, 2_000_000, 7)
    lag = found["lag"].data
    assert isinstance(lag, Gauge)
    assert [(one.attributes, one.value) for one in lag.data_points] == [
        ({"reader": "a"}, 1),
        ({"reader": "b"}, 2),
    ]
    assert {name: one.unit for name, one in found.items()} == {
        "publishes_total": "1", "lag": "1", "free_bytes": "By", "flush_seconds": "s",
    }  # fmt: skip
    durations = found["flush_seconds"].data
    assert isinstance(durations, Histogram)
    flush = durations.data_points[0]
    assert (flush.count, sum(flush.bucket_counts), len(flush.explicit_bounds) + 1) == (3, 3, len(counts))
    assert math.isfinite(flush.sum)


TRACE = {
    "event": "trace",
    "node": "n",
    "trace": f"{0xABC:032x}",
    "parent": f"{7:016x}",
    "log": "mqtt",
    "partition": 0,
    "offset": 5,
    "records": 3,
    "spans": [{"name": name, "from_us": 1, "to_us": 2} for name in ("publish", "append", "deliver")],
}


def test_trace_becomes_the_same_spans_each_time_below_the_one_that_it_continues() -> None:
    first, again = spans_of(TRACE), spans_of(TRACE)
    publish = first[0]
    assert publish.context.trace_id == 0xABC and publish.parent is not None and publish.parent.span_id == 7
    assert [one.name for one in first] == ["publish", "append", "deliver"]
    assert {one.parent.span_id for one in first[1:] if one.parent} == {publish.context.span_id}
    ids = [one.context.span_id for one in first]
    assert ids == [one.context.span_id for one in again] and len(set(ids)) == 3
    assert ids != [one.context.span_id for one in spans_of({**TRACE, "offset": 6})]
    assert (publish.start_time, publish.end_time) == (1000, 2000)


@pytest.mark.parametrize(
    "changes", [{"trace": "x"}, {"parent": 7}, {"spans": None}, {"spans": [{}]}, {"records": None}]
)
def test_trace_that_is_not_valid_has_no_spans(changes: dict[str, Any]) -> None:
    assert spans_of({**TRACE, **changes}) == []
