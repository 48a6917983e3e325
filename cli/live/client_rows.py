"""Connected clients of a server as rows of a table, and what changed between two looks at them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..output.tables import simple_table
from ..units import format_second

RATES = {
    "publishes_received": "publishes_received_per_s",
    "deliveries_sent": "deliveries_sent_per_s",
    "bytes_received": "bytes_received_per_s",
    "bytes_sent": "bytes_sent_per_s",
}
"""Counters of a client, and the name of their rates."""
_NAME_MOST = 40
_KIB = 1024


def with_rates(
    rows: Sequence[Mapping[str, Any]], earlier: Mapping[tuple[str, int], Mapping[str, Any]], passed_s: float
) -> list[dict[str, Any]]:
    """Return rows with their rates since an earlier look. A connection that is new since then had no traffic before."""
    found = []
    for row in rows:
        before = earlier.get(key(row), {})
        rates = {rate: round((row[name] - before.get(name, 0)) / passed_s, 1) for name, rate in RATES.items()}
        found.append({**row, **rates})
    return found


def key(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return what identifies a connection."""
    return row["front"], row["connection"]


def shown(text: str) -> str:
    """Return a name of a client, cut, with everything escaped that is invisible or that a terminal acts on."""
    line = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return line if len(line) <= _NAME_MOST else f"{line[: _NAME_MOST - 1]}…"


def clients_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table with a line for each client."""
    table = simple_table()
    for heading in ("client", "user", "address", "connected since", "MQTT"):
        table.add_column(heading, no_wrap=True)
    numbers = ("subscriptions", "in", "out", "in B", "out B", "window", "lag", "unsent")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(shown(row["client"])),
            Text(shown(row["user"] or "-")),
            row["address"],
            format_second(row["connected_us"]),
            row["mqtt"],
            f"{row['subscriptions']:,}",
            f"{row['publishes_received']:,}",
            f"{row['deliveries_sent']:,}",
            size(row["bytes_received"]),
            size(row["bytes_sent"]),
            f"{row['in_flight']:,}",
            f"{row['lag']:,}",
            size(row["unsent_bytes"]),
        )
    return table


ATTACHED: Collection[str] = ("out", "in B", "out B")
"""Headings that stay beside the one before them when a table is split."""


def rates_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of what each client does now; it fits 80 columns for names of usual length."""
    table = simple_table()
    table.add_column("client", no_wrap=True, overflow="ellipsis", min_width=8)
    table.add_column("user", no_wrap=True, overflow="ellipsis")
    for heading in ("in/s", "out/s", "in B/s", "out B/s", "window", "lag", "unsent"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(shown(row["client"])),
            Text(shown(row["user"] or "-")),
            f"{row[RATES['publishes_received']]:,.0f}",
            f"{row[RATES['deliveries_sent']]:,.0f}",
            size(row[RATES["bytes_received"]]),
            size(row[RATES["bytes_sent"]]),
            f"{row['in_flight']:,}",
            f"{row['lag']:,}",
            size(row["unsent_bytes"]),
        )
    return table


def size(count: float) -> str:
    """Return a size as a cell: `3.8M` is in MiB, a number without a letter in bytes."""
    for letter in ("", "K", "M", "G"):
        if count < _KIB:
            return f"{count:,.1f}{letter}" if letter else f"{count:,.0f}"
        count /= _KIB
    return f"{count:,.1f}T"
