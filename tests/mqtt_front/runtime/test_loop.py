"""Event loops and transports have the calls that the front needs."""

import asyncio

import pytest
import uvloop

from mqtt_front.runtime import loop
from tests.support.manual_loop import ManualLoop


def names(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [asyncio.AbstractEventLoop, uvloop.Loop, ManualLoop])
def test_every_event_loop_has_the_required_calls(kind: type) -> None:
    assert [name for name in names(loop.Loop) if not callable(getattr(kind, name, None))] == []


def test_transports_have_the_required_calls() -> None:
    assert [
        name for name in names(loop.Transport) if not callable(getattr(asyncio.Transport, name, None))
    ] == []


def test_timers_can_be_cancelled() -> None:
    assert [
        name for name in names(loop.Timer) if not callable(getattr(asyncio.TimerHandle, name, None))
    ] == []
