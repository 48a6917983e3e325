import itertools
from pathlib import Path

import pytest

import timestone
from timestone.metrics.metric import metric
from timestone.metrics.records import METRICS_LOG, METRICS_TOPIC, decode_sample, encode_sample, sample_of
from timestone.store import open_store
from timestone.view import view_store
from timestone_bench.console.large_store import STEP_US, fill
from timestone_bench.errors import BenchmarkError


def test_samples_are_steps_of_time_with_the_figures_of_the_server_and_topics_have_a_record_each(
    tmp_path: Path,
) -> None:
    own = sample_of(
        [metric("timestone_own", "gauge", "Own.", 7)], time_us=1, started_us=1, node="n", interval_ms=1
    )
    with open_store(tmp_path) as store:
        store.log(METRICS_LOG).append(encode_sample(own), topic=METRICS_TOPIC)
    fill(tmp_path, 30, 130)
    with view_store(tmp_path) as view:
        samples = [decode_sample(record.payload) for record in view.log(METRICS_LOG).read(1)]
        assert len(view.log("mqtt").topics) == view.log("mqtt").end_offset == 30
    assert len(samples) == 130 and samples[9].values["timestone_own"] == 7
    assert {b.time_us - a.time_us for a, b in itertools.pairwise(samples)} == {STEP_US}


def test_store_without_a_sample_is_refused(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        store.log("mqtt")
    with pytest.raises(BenchmarkError, match="has written no sample"):
        fill(tmp_path, 1, 1)
