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
