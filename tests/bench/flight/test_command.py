import json

import pytest

from tests.bench.commands import run
from timestone_bench.flight import command as flight

KINDS = [
    f"{what} {kind}"
    for what in ("append", "read")
    for kind in ("library", "flight", "bare", "files", "log", "mqtt")
]


@pytest.mark.slow
def test_flight_is_measured_beside_library_mqtt_and_bare_servers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flight.command, "--quick", "--megabytes", "4", "--json", "--dir", ".") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert list(result["megabytes_per_s"]) == KINDS
    assert min(result["megabytes_per_s"].values()) > 0
    assert set(result["flight_divided_by"]) == {one for one in KINDS if not one.endswith("flight")}
    assert len(result["processor_ms_per_mib"]) == 8 and min(result["processor_ms_per_mib"].values()) > 0
    assert len(result["latency_us"]) == 4 and min(result["latency_us"].values()) > 0
