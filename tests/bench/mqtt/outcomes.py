"""A small comparison, made without measuring anything."""

from timestone_bench.mqtt.comparison import build_comparison
from timestone_bench.mqtt.scenario import Outcome, Scenario


def outcome(per_s: float, cpu_us: float, busy: float = 0.3, **faults: int) -> Outcome:
    figures = {
        "per_s": per_s,
        "cpu_us": cpu_us,
        "generator_busy": busy,
        "server_busy": 0.5,
        "ack_p50_us": 100.0,
    }
    return Outcome(figures=figures, faults=faults)


SCENARIO = Scenario(name="fan-in", publishers=10, messages=1000)
COMPARISON = build_comparison(
    SCENARIO,
    {
        "timestone synced": [outcome(300_000, 1.0), outcome(100_000, 2.0), outcome(200_000, 3.0)],
        "other": [outcome(50_000, 4.0), outcome(50_000, 4.0, lost=7), outcome(50_000, 4.0)],
        "busy one": [outcome(50_000, 4.0, busy=0.97)] * 3,
        "null server": [outcome(900_000, 0.1, lost=5)] * 3,
    },
)
