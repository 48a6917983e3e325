"""The defaults of each scenario."""

from dataclasses import dataclass
from typing import Any

from .scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A scenario and its small form."""

    summary: str
    scenario: Scenario
    quick: dict[str, Any]


PRESETS: dict[str, Preset] = {
    "connection": Preset(
        summary="clients connect and subscribe, then do nothing",
        scenario=Scenario(name="connection", qos=0, publishers=10_000),
        quick={"publishers": 1000, "idle_s": 1.0},
    ),
    "fan-in": Preset(
        summary="many publish",
        scenario=Scenario(name="fan-in", publishers=10, messages=500_000),
        quick={"messages": 50_000},
    ),
    "fan-out": Preset(
        summary="one publishes, many subscribe",
        scenario=Scenario(name="fan-out", qos=0, subscribers=10, messages=200_000, window=5000),
        quick={"messages": 20_000},
    ),
    "point-to-point": Preset(
        summary="pairs at a fixed rate: how long from publish to delivery?",
        scenario=Scenario(name="point-to-point", publishers=10, subscribers=10, messages=10_000, rate=2000),
        quick={"messages": 2000},
    ),
    "ping-pong": Preset(
        summary="one message at a time: how long from publish to delivery?",
        scenario=Scenario(name="ping-pong", qos=0, subscribers=1, messages=20_000),
        quick={"messages": 2000},
    ),
    "back-pressure": Preset(
        summary="pairs at a fixed rate, beside one that floods and one that never reads",
        scenario=Scenario(name="back-pressure", publishers=100, subscribers=100, messages=18_000, rate=1000),
        quick={"messages": 3600},
    ),
    "session-unload": Preset(
        summary="a persistent session takes what it missed",
        scenario=Scenario(name="session-unload", messages=1_000_000),
        quick={"messages": 50_000},
    ),
}
