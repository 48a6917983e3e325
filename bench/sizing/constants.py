"""The numbers that sizes are computed from: measured ones, choices, and prices. To replace one, change it here, and
print the tables of docs/scale.md again."""

from collections.abc import Mapping
from typing import NamedTuple


class Constant(NamedTuple):
    """A number, its unit, and where it comes from."""

    value: float
    unit: str
    source: str


_ONE_EACH = "`bench cluster`, row `one-each cluster`: 1,000 clients, one message each at a time"
MEASURED: Mapping[str, Constant] = {
    "single message": Constant(
        11.0,
        "processor µs",
        "`bench peers`, match `one-each` at `synced`: 1,000 clients, one message each at a time",
    ),
    "led message": Constant(15.8, "processor µs", f"{_ONE_EACH}, of the server"),
    "followed message": Constant(
        6.0, "processor µs", f"{_ONE_EACH}, of all others, halved: a follower, etcd with it"
    ),
    "lone message": Constant(
        690.0,
        "processor µs",
        "`bench cluster`, row `lone cluster`, of the server: 1,000 messages a second in all",
    ),
    "record": Constant(
        32.0, "bytes", "entry in the index of a record without properties: docs/formats/index-file.md"
    ),
    "connection": Constant(
        7.3, "KiB", "growth of the server for 2,000 subscribed clients; 6.7 in `bench peers`"
    ),
    "connection in the kernel": Constant(
        3.3, "KiB", "growth of the kernel's memory for the same, halved: two ends"
    ),
    "connection with TLS": Constant(17.0, "KiB more", "the same through a TLS listener: 24.3 KiB each"),
    "session": Constant(0.75, "KiB", "100,000 sessions away: docs/sessions.md"),
    "state": Constant(330.0, "bytes a session", "the same"),
    "process": Constant(73.0, "MiB", "`bench cluster`, row `idle`, memory of a node with 16 shards"),
    "connects": Constant(4884.0, "a second", "`bench peers`, match `connections`, one process"),
    "connects with TLS": Constant(
        1000.0, "a second", "1.0 ms of processor each, elliptic curves, no resumption"
    ),
    "without a leader": Constant(4.5, "s", "the most after a kill -9: docs/cluster.md"),
    "etcd requests": Constant(1.5, "a second and node", "`bench cluster`, row `idle`: 4.5 for three nodes"),
}

CHOSEN: Mapping[str, Constant] = {
    "busy": Constant(
        0.5, "of one core", "for a process with all nodes there, at the cost of a message under full load"
    ),
    "busy without one": Constant(0.75, "of one core", "for a process while one node is away"),
    "connections": Constant(50_000, "a process", "measured are 20,000; more than that has not been"),
    "cores": Constant(2, "a process", "one for the process, one for flushes, the kernel and etcd"),
    "free memory": Constant(0.5, "of a machine", "for the page cache, from which readers are served"),
    "segment": Constant(256, "MiB", "the default; docs/buckets.md has its requests"),
}

PRICES: Mapping[str, Constant] = {
    "core": Constant(25.0, "a core and month", "example"),
    "memory": Constant(3.0, "a GiB and month", "example"),
    "disk": Constant(0.10, "a GB and month", "example, network SSD; local disks cost less"),
    "bucket": Constant(0.023, "a GB and month", "example"),
    "requests": Constant(5.0, "a million writes", "example"),
    "traffic": Constant(0.02, "a GB between zones", "example; 0 within a zone"),
}
"""In any currency; none is an offer. A user gives the own ones with `--price`."""


def constants() -> dict[str, float]:
    """Return all values by name. A price has `price of` in front."""
    found = {name: one.value for table in (MEASURED, CHOSEN) for name, one in table.items()}
    return found | {f"price of {name}": one.value for name, one in PRICES.items()}
