import time
from pathlib import Path

import pytest

from tests.support.console_client import Console, write_samples
from tests.support.control_server import controlled_server
from tests.support.mqtt_server import mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.stores import LOG, fill
from timestone_cli.server.collection import Collection
from timestone_cli.server.figures import Figures

RECEIVED = "timestone_mqtt_publishes_received_total"


def test_overview_of_a_stopped_store_has_its_last_figures_and_says_that_it_is_down(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    write_samples(tmp_path / "data", 30)
    with Console(tmp_path / "data") as console:
        found = console.get("overview")
    assert found["server"]["state"] == "stopped" and found["live"] is None
    assert found["rates"]["publishes_per_s"] == pytest.approx(10.0)
    assert found["clients"]["connected"] == 29 % 7
    assert found["disk"]["store_bytes"] > 0 and found["disk"]["full_in_s"] is None
    assert [(one["log"], one["end_offset"]) for one in found["horizons"]] == [(LOG, 10)]
    assert [one["name"] for one in found["wrong"]] == ["TimestonePublishesDropped"]


def test_overview_has_live_figures_that_clients_counted(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, Console(tmp_path / "data") as console:
        assert console.get("overview")["live"] is None
        with PahoClient("writing") as writing:
            writing.connect(server.address)
            for _ in range(20):
                writing.publish("t/1", b"x", 1)
            console.sources._status_s -= 1
            found = console.get("overview")
            assert found["server"]["state"] == "running"
            assert round(found["live"]["publishes_per_s"] * found["live"]["span_s"]) == 20
            assert found["live"]["connected"] == 1


def test_series_has_rates_gauges_and_gaps(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 20, starts=2)
    with Console(tmp_path / "data") as console:
        names = [RECEIVED, "timestone_mqtt_sessions_connected", "timestone_store_flush_seconds:p99"]
        found = console.get("series", name=names, points=100)
        rates, gauge, flush = found["series"]
        assert (rates["kind"], gauge["kind"], flush["kind"]) == ("rate", "gauge", "percentile")
        assert rates["values"].count(None) == 1 and rates["most"] == pytest.approx(10.0)
        assert len(found["starts_us"]) == 1 and flush["most"] is None and flush["unit"] == "seconds"
        assert len(found["times_us"]) == len(gauge["values"])
        assert console.get("series", name="x", **{"from": 5, "to": 4})["times_us"] == []


def test_series_goes_on_when_the_clock_was_ahead_and_is_set_back(tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    write_samples(tmp_path / "data", 20, ahead_us=hour_us)
    write_samples(tmp_path / "data", 10, first=360)
    with Console(tmp_path / "data") as console:
        found = console.get("series", name=[RECEIVED, "timestone_mqtt_sessions_connected"], points=100)
        times, (rates, gauge) = found["times_us"], found["series"]
        assert times == sorted(set(times)) and found["to_us"] - times[-1] < 60_000_000
        assert rates["values"] == [None] + [pytest.approx(10.0)] * 9
        assert gauge["values"][-1] == 369 % 7
        assert console.get("overview")["rates"]["publishes_per_s"] == pytest.approx(10.0)
    write_samples(tmp_path / "data", 5, first=370, ahead_us=hour_us)  # and ahead again
    with Console(tmp_path / "data") as console:
        span = {"from": found["from_us"], "to": found["to_us"] + 2 * hour_us}
        later = console.get("series", name=RECEIVED, points=100, **span)
        assert len(later["times_us"]) == 15 and later["series"][0]["most"] == pytest.approx(10.0)


@pytest.mark.slow
def test_month_of_samples_is_read_in_500_points(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", 26_000, interval_us=100_000_000)
    with Console(tmp_path / "data") as console:
        now_us = time.time_ns() // 1000
        found = console.get(
            "series", name=RECEIVED, points=500, **{"from": now_us - 30 * 86_400_000_000, "to": now_us}
        )
        values = found["series"][0]["values"]
        assert 400 <= len(values) <= 500 and all(value == pytest.approx(1.0, rel=0.01) for value in values)


def test_latencies_agree_with_the_clocks_of_a_client(tmp_path: Path) -> None:
    with mqtt_server(tmp_path / "data") as server, PahoClient("writing") as writing:
        figures = Figures(Collection(server.store, [server.front]), 3_600_000)
        server.run(figures.start())
        server.run(figures._sample())
        writing.connect(server.address)
        times_s = []
        for _ in range(300):
            began_s = time.perf_counter()
            writing.publish("t/1", b"x", 1)
            times_s.append(time.perf_counter() - began_s)
        server.run(figures.stop())
        with Console(tmp_path / "data") as console:
            found = console.get("overview")["latencies"]["acknowledge"]
    times_s.sort()
    assert found["count"] == 300
    # The time of the server is a part of that of the client, and a bucket ends at most at twice a value in it.
    for name, rank in (("p50_s", 150), ("p99_s", 297), ("max_s", 299)):
        assert found[name] <= 2 * times_s[rank], name
