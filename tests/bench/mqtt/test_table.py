import pytest

from tests.bench.mqtt.outcomes import COMPARISON
from timestone_bench.mqtt.table import columns, print_comparison


def test_a_table_has_a_line_for_each_server_and_the_warnings_behind_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_comparison(COMPARISON)
    lines = capsys.readouterr().out.splitlines()
    text = " ".join(line.strip() for line in lines)
    assert (
        "fan-in: QoS 1, 100 bytes, 10 clients, 1,000 messages, full speed, window 100, medians of 3" in text
    )
    assert max(map(len, lines)) <= 80
    other = next(line.split() for line in lines if line.startswith("other"))
    assert other == ["other", "50,000", "4.00", "4.00", "0.50", "100", "1.00", "30.0%"]
    assert "warning: other: 7 lost" in lines
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("name", "delivers", "paced", "first", "latency"),
    [
        ("connection", False, False, "connects/s", "connect_p50_us"),
        ("session-unload", False, False, "unloaded/s", None),
        ("back-pressure", True, True, "p50 us", None),
        ("fan-out", True, False, "deliveries/s", "ack_p50_us"),
        ("point-to-point", True, True, "deliveries/s", "delivery_p50_us"),
        ("ping-pong", True, False, "deliveries/s", "delivery_p50_us"),
    ],
)
def test_each_scenario_has_the_columns_that_matter(
    name: str, delivers: bool, paced: bool, first: str, latency: str | None
) -> None:
    found = columns(name, delivers=delivers, paced=paced)
    assert found[0].heading == first
    assert latency is None or latency in [column.figure for column in found]
