"""The server that does nothing does as much as a load needs: answers, acknowledgements, copies."""

import pytest

from timestone_bench.mqtt.scenario import Scenario, run_scenario
from timestone_bench.mqtt.servers import null_server

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
