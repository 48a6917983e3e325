import json
from pathlib import Path

import pytest

from timestone.metrics.histogram import Histogram
from timestone.metrics.metric import Metric, by_label, metric
from timestone.metrics.records import (
    SCHEMA,
    UnsupportedSchema,
    decode_event,
    decode_sample,
    encode_event,
    encode_sample,
    sample_of,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "server" / "v1.jsonl"


def test_sample_has_each_value_under_its_name_in_metrics_and_buckets_that_add_up() -> None:
    waits = Histogram()
    for duration_ns in (16_000, 20_000, 20_000, 10**12):
        waits.observe(duration_ns)
    metrics = [
        metric("load", "gauge", "Load.", 0.5),
        by_label("ends", "Ends.", "reason", {'a"b': 7}),
        metric("wait_seconds", "histogram", "Waits.", waits),
        Metric("build", "info", "Version.", [({"version": "1"}, 1)]),
    ]
    sample = sample_of(metrics, time_us=2, started_us=1, node="n", interval_ms=100)
    assert sample.values == {"load": 0.5, 'ends_total{reason="a\\"b"}': 7}
    counts = sample.histograms["wait_seconds"].counts
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (1, 2, 1, waits.count)
    assert decode_sample(encode_sample(sample)) == sample


def test_event_has_its_facts_and_long_texts_of_a_client_are_cut() -> None:
    payload = encode_event("connected", {"client": "\ud800é\n" * 1000, "connection": 3}, time_us=5, node="n")
    found = decode_event(payload)
    assert (found["event"], found["connection"], len(found["client"])) == ("connected", 3, 1000)
    assert payload.isascii() and b"\n" not in payload


def test_records_of_version_1_are_read() -> None:
    sample, *events = GOLDEN.read_bytes().splitlines()
    found = decode_sample(sample)
    assert found.values["timestone_mqtt_publishes_received_total"] == 2
    assert sum(found.histograms["timestone_mqtt_acknowledge_seconds"].counts) == 2
    assert [decode_event(one)["event"] for one in events] == [
        "connected", "disconnected", "traffic", "hour",
    ]  # fmt: skip
    assert decode_event(events[1])["counts"]["publishes_received"] == 1
    assert decode_event(events[2])["counts"]["packets_received"] == 2
    assert decode_event(events[3])["gauges"]["timestone_mqtt_sessions_connected"]["max"] == 1


@pytest.mark.parametrize("payload", [b"[]", b"{}", b"nonsense", b"\xff", b'{"schema":1,"histograms":[]}'])
def test_invalid_sample_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"(?i)invalid|expecting"):
        decode_sample(payload)


def test_record_of_a_later_version_is_an_error_of_its_own() -> None:
    later = json.dumps({"schema": SCHEMA + 1}).encode()
    for decode in (decode_sample, decode_event):
        with pytest.raises(UnsupportedSchema, match=f"expected at most {SCHEMA}"):
            decode(later)
