from timestone.metrics.histogram import Histogram
from timestone.metrics.metric import Metric, added, by_label, metric


def test_a_metric_has_a_sample_without_labels_or_one_for_each_value_of_a_label() -> None:
    assert metric("load", "gauge", "Load.", 0.5) == Metric("load", "gauge", "Load.", [({}, 0.5)])
    assert by_label("ends", "Ends.", "reason", {"lost": 2}).samples == [({"reason": "lost"}, 2)]


def test_metrics_of_several_parts_are_added() -> None:
    parts = []
    for value in (1, 2):
        times = Histogram()
        times.observe(20_000, value)
        parts.append(
            [
                metric("a", "gauge", "A.", value),
                by_label("b", "B.", "kind", {"x": value, f"only {value}": 1}),
                metric("c_seconds", "histogram", "C.", times),
            ]
        )
    one, labelled, timed = added(parts)
    assert one.samples == [({}, 3)]
    assert labelled.samples == [({"kind": "x"}, 3), ({"kind": "only 1"}, 1), ({"kind": "only 2"}, 1)]
    assert [value.count for _, value in timed.samples if isinstance(value, Histogram)] == [3]
    assert added(parts[:1]) is parts[0]
