"""Traffic of connected clients: which connections are recorded each minute. Those in trouble come first, then the
busiest."""

import asyncio
import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from timestone.fronts import Administered

BEHIND = 1000
"""Offsets of lag from which a client counts as behind."""
COUNTS = (
    "publishes_received",
    "publishes_refused",
    "deliveries_sent",
    "packets_received",
    "packets_sent",
    "bytes_received",
    "bytes_sent",
)
_FACTS = (
    "connection", "client", "user", "address", "transport", "mqtt", "connected_us", "idle_s", "lag", "unsent_bytes",
    "submitted_bytes", "held",
)  # fmt: skip
_SLICE = 25
"""Connections between two turns of the event loop."""
Row = Mapping[str, Any]


class _Recorded(NamedTuple):
    """Counts of the connections of a front at their last records. Two tables of numbers: with a pair for each
    connection it would be three times as large."""

    packets: dict[int, int]
    refused: dict[int, int]
    """Refused publishes, of the few connections that have some."""

    def keep(self, connection: int, last: "_Recorded") -> None:
        """Take over what was known of a connection."""
        for ours, theirs in zip(self, last, strict=True):
            if connection in theirs:
                ours[connection] = theirs[connection]

    def note(self, row: Row) -> None:
        """Note the counts of a connection that is recorded."""
        self.packets[row["connection"]] = _packets(row)
        if row["publishes_refused"]:
            self.refused[row["connection"]] = row["publishes_refused"]


class ClientTraffic:
    """Connections of one server. Event-loop thread only."""

    def __init__(self, count: int) -> None:
        """count: most connections to record at a time."""
        self.count = count
        self._recorded: dict[str, _Recorded] = {}
        """By front."""

    async def rows(self, fronts: Sequence[Administered]) -> list[dict[str, Any]]:
        """Return the facts of connections that are in trouble or have moved since their last record, the most urgent
        first. Those above the limit have their turn later: what is recorded are counts since the connection began."""
        heap: list[tuple[bool, int, tuple[str, int], list[str], Row]] = []
        found = 0
        before, self._recorded = self._recorded, {front.name: _Recorded({}, {}) for front in fronts}
        for front in fronts:
            clients = front.clients()
            last = before.get(front.name, _Recorded({}, {}))
            while page := list(itertools.islice(clients, _SLICE)):
                for row in page:
                    key = front.name, row["connection"]
                    self._recorded[front.name].keep(row["connection"], last)
                    moved = _packets(row) - last.packets.get(row["connection"], 0)
                    trouble = _trouble(row, last.refused.get(row["connection"], 0))
                    if moved or trouble:
                        found += 1
                        add = heapq.heappush if len(heap) < self.count else heapq.heappushpop
                        add(heap, (bool(trouble), moved, key, trouble, row))
                await asyncio.sleep(0)
        heap.sort(reverse=True)
        for _, _, (name, _), _, row in heap:
            self._recorded[name].note(row)
        return [_facts(row, trouble, found - len(heap)) for _, _, _, trouble, row in heap]


def _packets(row: Row) -> int:
    packets: int = row["packets_received"] + row["packets_sent"]
    return packets


def _trouble(row: Row, refused: int) -> list[str]:
    """Return why a client needs attention: the server does not read from it, it does not read, it lags, or its
    publishes were refused since its last record."""
    found = {
        "held": row["held"],
        "unsent": row["unsent_bytes"],
        "behind": row["lag"] > BEHIND,
        "refused": row["publishes_refused"] > refused,
    }
    return [name for name, is_so in found.items() if is_so]


def _facts(row: Row, trouble: list[str], left_out: int) -> dict[str, Any]:
    return {
        **{name: row[name] for name in _FACTS},
        "trouble": trouble,
        "counts": {name: row[name] for name in COUNTS},
        "left_out": left_out,
    }
