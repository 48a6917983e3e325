"""Medians, ratios within a repeat, and what to doubt."""

import pytest

from tests.bench.mqtt.outcomes import COMPARISON, SCENARIO, outcome
from timestone_bench.mqtt.comparison import build_comparison, can_run, take_turns
from timestone_bench.mqtt.scenario import Scenario
from timestone_bench.mqtt.servers import null_server
from timestone_bench.mqtt.target import NULL_SERVER, Target


def test_each_figure_is_a_median_and_ratios_are_of_one_repeat() -> None:
    ours, other = COMPARISON.rows[:2]
    assert ours.figures["per_s"].median == 200_000 and ours.ratios == {}
    assert (other.ratios["per_s"].low, other.ratios["per_s"].median, other.ratios["per_s"].high) == (2, 4, 6)
    assert other.ratios["cpu_us"].median == 0.5


def test_faults_and_a_busy_generator_are_warned_of() -> None:
    assert list(COMPARISON.warnings) == [
        "other: 7 lost",
        "busy one: the load generator was busy 97%: it may be the bottleneck (--processes)",
    ]
    near = build_comparison(
        SCENARIO, {"a": [outcome(600_000, 1.0, busy=0.6)], NULL_SERVER: [outcome(900_000, 1.0)]}
    )
    assert "near the maximum of the load generator" in near.warnings[0]


@pytest.mark.parametrize(
    ("scenario", "native", "null"),
    [
        (Scenario(name="fan-in", qos=1), False, True),
        (Scenario(name="fan-in", qos=0), True, True),
        (Scenario(name="connection"), True, True),
        (Scenario(name="session-unload"), False, False),
        (Scenario(name="back-pressure"), False, False),
    ],
)
def test_who_cannot_run_a_scenario_is_left_out(scenario: Scenario, native: bool, null: bool) -> None:
    assert can_run(scenario, Target("nats", "nats", "h", 1)) is native
    assert can_run(scenario, Target(NULL_SERVER, "mqtt", "h", 1)) is null


@pytest.mark.slow
def test_servers_take_turns() -> None:
    said: list[str] = []
    with null_server() as one:
        other = Target("other", one.scheme, one.host, one.port)
        scenario = Scenario(name="fan-in", publishers=2, messages=200)
        runs = take_turns(scenario, [one, other], 2, said.append)
    assert {name: len(outcomes) for name, outcomes in runs.items()} == {NULL_SERVER: 2, "other": 2}
    assert [text.split(": ")[0] for text in said] == [f"fan-in, {NULL_SERVER}", "fan-in, other"] * 2
    assert "cpu_us" in runs[NULL_SERVER][0].figures and "cpu_us" not in runs["other"][0].figures
