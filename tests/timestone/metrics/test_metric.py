from timestone.metrics.metric import Metric, by_label, metric


def test_a_metric_has_a_sample_without_labels_or_one_for_each_value_of_a_label() -> None:
    assert metric("load", "gauge", "Load.", 0.5) == Metric("load", "gauge", "Load.", [({}, 0.5)])
    assert by_label("ends", "Ends.", "reason", {"lost": 2}).samples == [({"reason": "lost"}, 2)]
