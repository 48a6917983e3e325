"""The server that does nothing does as much as a load needs: answers, acknowledgements, copies."""

from pathlib import Path

import pytest

from timestone_bench.mqtt.scenario import Scenario, run_scenario
from timestone_bench.mqtt.servers import null_server
from timestone_bench.mqtt.target import WRITING_NULL_SERVER

SCENARIOS = [
    Scenario(name="fan-in", publishers=3, messages=9000, window=50),
    Scenario(name="fan-in", qos=0, publishers=3, messages=9000, payload_bytes=1000),
    Scenario(name="fan-out", qos=0, subscribers=4, messages=5000, window=500),
    Scenario(name="fan-out", qos=1, publishers=2, subscribers=3, messages=6000, window=500, processes=3),
    Scenario(name="point-to-point", publishers=3, subscribers=3, messages=300, rate=3000),
    Scenario(name="fan-in", publishers=20, messages=200, rate=2000),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=Scenario.describe)
@pytest.mark.slow
def test_every_scenario_of_messages_runs_against_it_without_a_fault(scenario: Scenario) -> None:
    with null_server() as target:
        outcome = run_scenario(scenario, target)
    assert outcome.faults == {}
    assert outcome.figures["per_s"] > 0
    assert ("delivery_p50_us" in outcome.figures) == (scenario.subscribers > 0 and scenario.rate is not None)


@pytest.mark.slow
def test_messages_are_written_before_they_are_passed_on(tmp_path: Path) -> None:
    with null_server(tmp_path) as target:
        outcome = run_scenario(SCENARIOS[2], target)
    assert outcome.faults == {} and target.name == WRITING_NULL_SERVER
    sizes = [(tmp_path / name).stat().st_size for name in ("records", "index")]
    assert sizes[1] == 5000 * 32 and sizes[0] > 5000 * SCENARIOS[2].payload_bytes
