from typing import Any

from rich.console import Console

from timestone_cli.live.client_rows import RATES, clients_table, rates_table, shown, size, with_rates

ROW: dict[str, Any] = {
    "front": "mqtt", "connection": 1, "client": "c", "user": None, "address": "127.0.0.1:1", "mqtt": "5",
    "connected_us": 1_700_000_000_000_000, "subscriptions": 2, "publishes_received": 30, "deliveries_sent": 10,
    "bytes_received": 4000, "bytes_sent": 900, "in_flight": 3, "lag": 7, "unsent_bytes": 2048,
}  # fmt: skip


def printed(table: Any, width: int = 200) -> list[str]:
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_rates_are_those_since_the_earlier_look() -> None:
    earlier = {("mqtt", 1): {**ROW, "publishes_received": 10, "bytes_received": 3000}}
    (row,) = with_rates([ROW], earlier, 2.0)
    assert (row[RATES["publishes_received"]], row[RATES["bytes_received"]]) == (10.0, 500.0)
    assert row[RATES["deliveries_sent"]] == 0.0


def test_connection_that_is_new_has_had_all_of_its_traffic_since_the_earlier_look() -> None:
    earlier = {("mqtt", 2): ROW}
    (row,) = with_rates([ROW], earlier, 2.0)
    assert row[RATES["publishes_received"]] == 15.0


def test_names_that_control_a_terminal_or_a_table_are_escaped_and_cut() -> None:
    assert shown("a\x1b[2J\n\tb\x9b") == "a\\x1b[2J\\n\\tb\\x9b"
    assert shown("\ud800\u202ex\u200b") == "\\ud800\\u202ex\\u200b"
    assert shown("x" * 100) == "x" * 39 + "…"
    lines = printed(clients_table([{**ROW, "client": "[red]x[/red]\n=1+1", "user": "\x1b]0;u\x07"}]))
    assert "[red]x[/red]\\n=1+1" in lines[-1] and "\x1b" not in "".join(lines)


def test_table_has_the_figures_of_each_client() -> None:
    assert printed(clients_table([ROW]))[-1].split() == [
        "c", "-", "127.0.0.1:1", "2023-11-14", "22:13:20Z", "5", "2", "30", "10", "3.9K", "900", "3", "7", "2.0K",
    ]  # fmt: skip


def test_table_of_rates_fits_80_columns() -> None:
    (row,) = with_rates([{**ROW, "client": "device-0000017", "user": "somebody"}], {}, 0.001)
    lines = printed(rates_table([row]), width=80)
    assert max(map(len, lines)) <= 80 and "device-0000017" in lines[-1] and "30,000" in lines[-1]


def test_size_is_short() -> None:
    assert [size(count) for count in (0, 1023, 2048, 1 << 31, 1 << 50)] == [
        "0",
        "1,023",
        "2.0K",
        "2.0G",
        "1,024.0T",
    ]
