import json
from pathlib import Path

import timestone
from tests.cli.processes import timestone as command
from timestone.metrics.metric import metric
from timestone.metrics.records import METRICS_LOG, encode_sample, sample_of


def recorded(directory: Path, count: int) -> None:
    """Record samples as a server does that takes 10 messages between two of them."""
    with timestone.open(directory) as store:
        log = store.log(METRICS_LOG)
        for number in range(count):
            metrics = [metric("timestone_mqtt_publishes_received", "counter", "", number * 10)]
            now_us = store.now_us()
            sample = sample_of(metrics, time_us=now_us, started_us=1, node="n", interval_ms=100)
            log.append(encode_sample(sample), ack="written")


def test_a_stopped_store_has_a_table_plots_and_json(tmp_path: Path) -> None:
    recorded(tmp_path / "data", 20)
    done = command("metrics", "data", "--last", "1h", "--steps", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + 3 + 1 + 5 and lines[0].split()[:2] == ["from", "in/s"]
    found = json.loads(command("metrics", "data", "--steps", "1", "--json", cwd=tmp_path).stdout)
    (step,) = found["steps"]
    assert step["samples"] >= 18 and step["in_per_s"] > 0 and step["flush_p99_s"] is None
    assert found["end_us"] - found["start_us"] == 3600 * 1_000_000


def test_a_store_without_samples_is_an_error_of_one_line(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("telemetry").append(b"x")
    done = command("metrics", "data", cwd=tmp_path)
    assert done.returncode == 1 and "has no samples: no server has recorded" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_many_samples_are_read_at_equal_distances(tmp_path: Path) -> None:
    recorded(tmp_path / "data", 4100)
    found = json.loads(command("metrics", "data", "--steps", "1", "--json", cwd=tmp_path).stdout)
    assert 1300 < found["steps"][0]["samples"] < 2000
