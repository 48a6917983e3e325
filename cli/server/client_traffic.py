"""Traffic of connected clients: which connections are recorded each minute. Those in trouble come first, then the
busiest."""

import asyncio
import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

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


class ClientTraffic:
    """Connections of one server. Event-loop thread only."""

    def __init__(self, count: int) -> None:
        """count: most connections to record at a time."""
        self.count = count
        self._recorded: dict[tuple[str, int], tuple[int, int]] = {}
        """Packets and refused publishes of a connection at its last record."""

    async def rows(self, fronts: Sequence[Administered]) -> list[dict[str, Any]]:
        """Return the facts of connections that are in trouble or have moved since their last record, the most urgent
        first. Those above the limit have their turn later: what is recorded are counts since the connection began."""
        heap: list[tuple[bool, int, tuple[str, int], list[str], Row]] = []
        recorded, found = {}, 0
        for front in fronts:
            clients = front.clients()
            while page := list(itertools.islice(clients, _SLICE)):
                for row in page:
                    key = front.name, row["connection"]
                    packets, refused = self._recorded.get(key, (0, 0))
                    if packets:
                        recorded[key] = packets, refused
                    moved = _packets(row) - packets
                    trouble = _trouble(row, refused)
                    if moved or trouble:
                        found += 1
                        add = heapq.heappush if len(heap) < self.count else heapq.heappushpop
                        add(heap, (bool(trouble), moved, key, trouble, row))
                await asyncio.sleep(0)
        heap.sort(reverse=True)
        for _, _, key, _, row in heap:
            recorded[key] = _packets(row), row["publishes_refused"]
        self._recorded = recorded
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
