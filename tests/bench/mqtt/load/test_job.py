"""Jobs and reports survive the way to another process, and reports add up."""

import json

import numpy as np

from timestone_bench.mqtt.load.histogram import Histogram
from timestone_bench.mqtt.load.job import Job, Report

JOB = Job(
    scheme="mqtt", host="h", port=1, run="r", payload_bytes=100, qos=1, messages=5, publishers=(0, 3),
    publisher_count=3, subscribers=(2, 4),
)  # fmt: skip


def report(started_ns: int, ended_ns: int, sent: int, periods: int) -> Report:
    latency = Histogram()
    latency.add(np.array([1000, 2000]))
    return Report(
        started_ns=started_ns, ended_ns=ended_ns, sent=sent, acknowledged=sent, misordered_acks=0, received=1,
        lost=0, duplicates=0, reordered=0, cpu_s=sent / 10, ack_latency=latency,
        delivery_latencies=[latency] * periods,
    )  # fmt: skip


def test_a_job_is_the_same_on_the_other_side() -> None:
    assert Job.from_json(json.loads(json.dumps(JOB.to_json()))) == JOB


def test_subscribers_expect_what_their_topics_carry() -> None:
    assert (JOB.topic_filter(2), JOB.expected()) == ("bench/r/+", 15)
    paired = Job(**JOB.to_json() | {"paired": True})
    assert (paired.topic_filter(2), paired.expected()) == ("bench/r/000002", 5)
    assert len({len(JOB.topic(number)) for number in (0, 7, 99_999)}) == 1


def test_reports_of_several_processes_add_up() -> None:
    answers = [json.loads(json.dumps(one.to_json())) for one in (report(10, 50, 3, 2), report(10, 90, 4, 3))]
    merged = Report.merged([Report.from_json(answer) for answer in answers])
    assert (merged.started_ns, merged.ended_ns, merged.sent, merged.received) == (10, 90, 7, 2)
    assert merged.ack_latency.count == 4
    assert [period.count for period in merged.delivery_latencies] == [4, 4, 2]
    assert merged.cpu_s == 0.4  # of the busiest
