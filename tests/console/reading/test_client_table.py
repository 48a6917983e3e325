import pytest

from timestone_console.reading.client_table import COUNTERS, ClientTable, Row


def row(connection: int, count: int) -> Row:
    return {"front": "mqtt", "connection": connection, **dict.fromkeys(COUNTERS, count)}


def test_rates_are_those_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("timestone_console.reading.client_table.time.monotonic", lambda: now_s)
    looks = [[row(1, 10)], [row(1, 30), row(2, 6)], [row(2, 6)], []]
    asked: list[int] = []

    def fetch() -> list[Row]:
        asked.append(1)
        return looks.pop(0)

    table = ClientTable(fetch)
    assert [one["publishes_in_per_s"] for one in table.rows().rows] == [None]
    assert table.rows().rows[0]["publishes_received"] == 10 and len(asked) == 1
    now_s += 2
    assert [one["publishes_in_per_s"] for one in table.rows().rows] == [10.0, 3.0]
    now_s += 100  # too long ago for a rate
    assert [one["publishes_in_per_s"] for one in table.rows().rows] == [None]
    now_s += 1
    assert table.rows().rows == []


def test_look_that_takes_long_is_used_for_a_hundred_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("timestone_console.reading.client_table.time.monotonic", lambda: now_s)
    asked = 0

    def fetch() -> list[Row]:
        nonlocal now_s, asked
        now_s += 0.05
        asked += 1
        return [row(1, 10 * asked)]

    table = ClientTable(fetch)
    table.rows()
    now_s += 1  # the first look has no rates
    assert table.rows().rows[0]["publishes_received"] == 20
    now_s += 4.9
    assert table.rows().rows[0]["publishes_received"] == 20
    now_s += 0.1
    assert table.rows().rows[0]["publishes_in_per_s"] == pytest.approx(10 / 5.05)
