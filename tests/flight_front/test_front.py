import asyncio
import logging
from pathlib import Path

import pytest

import timestone
from flight_front.front import FlightFront
from flight_front.settings import FlightSettings
from tests.support.flight_server import flight_server
from timestone.config import StoreConfig
from timestone.fronts import Checked, Front, Measured, Reloadable

LOG = logging.getLogger("timestone.flight")


def test_front_fulfils_the_contract(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        front = FlightFront(store, FlightSettings(), log=LOG)
        for contract in (Front, Reloadable, Measured, Checked):
            assert isinstance(front, contract)


def test_front_without_an_address_does_nothing(tmp_path: Path) -> None:
    async def run(front: FlightFront) -> None:
        await front.start()
        await front.reload()
        await front.stop()

    with timestone.open(tmp_path) as store:
        front = FlightFront(store, FlightSettings(), log=LOG)
        asyncio.run(run(front))
        assert (front.describe(), front.status(), front.checks()) == ([], {"address": None}, {})
        assert list(front.metrics()) == []


def test_front_describes_itself_while_it_runs(tmp_path: Path) -> None:
    with flight_server(tmp_path, ack="written") as server:
        front = server.front
        assert front.describe() == [f"flight on {server.address}, Arrow Flight, ack written, anonymous"]
        assert front.checks() == {"listening": None}
        assert front.status() == {"address": server.address, "ack": "written", "calls_open": 0}
    assert front.checks() == {"listening": "it does not run"}
    assert next(one.name for one in front.metrics()) == "calls_open"


def test_unusable_file_is_found_before_a_store_is_opened(tmp_path: Path) -> None:
    settings = FlightSettings(listen="127.0.0.1:0", password_file=tmp_path / "missing")
    with pytest.raises(ValueError, match="missing: No such file"):
        FlightFront.check(settings, StoreConfig(), {})
