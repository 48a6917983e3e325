"""The model: from a fleet and the constants to machines, bytes and money. Pure functions of values.

A node is one process with one core for its event loop. What it does is the messages that it leads and those that it
follows, which are all others of its cluster (docs/decisions/0172-observers.md); it has to be able to do so with another
node away, and hold the connections of that one's clients. So a cluster cannot grow without end, and a fleet may need
several."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_DAY_S = 86_400
_MONTH_DAYS = 30.4
_GB = 1e9
_PART_BYTES = 8 * 2**20
"""Of an upload in parts: docs/buckets.md."""
_MOST_NODES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Devices and what is kept of them."""

    devices: int
    interval_s: float = 10.0
    """Between two messages of a device."""
    payload_bytes: int = 200
    replicas: int = 3
    """1: a single server without a cluster."""
    clusters: int | None = None
    """That the devices are divided over; None: as many as need the fewest nodes."""
    tls: bool = True
    local_days: float = 3.0
    bucket_days: float = 365.0
    compression: float = 1.0
    """Bytes of a record over those in the bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a fleet needs. Per node where a name says so."""

    messages_per_s: float
    clusters: int
    nodes: int
    """Of all clusters."""
    bound: str
    """What decides the number of nodes."""
    cores: int
    node_busy: float
    """Part of one core of a node, at the cost of a message under full load."""
    node_busy_alone: float
    """The same where each message comes alone and has a flush of its own: what a node shows, as long as that is less
    than a core."""
    node_memory_gib: float
    node_disk_gb: float
    node_disk_mb_per_s: float
    node_network_mb_per_s: float
    """In and out together, without readers."""
    local_gb_per_day: float
    """On all nodes."""
    bucket_gb_per_day: float
    bucket_tb: float
    bucket_writes_per_day: float
    reconnect_s: float
    """From the loss of a node until its clients are connected elsewhere; 0 for a server without a cluster."""
    state_mb: float
    """Sessions that the leaders after a lost node read."""
    etcd_per_s: float
    costs: Mapping[str, float]
    """A month, by what is paid."""

    @property
    def cost(self) -> float:
        """Return all costs of a month."""
        return sum(self.costs.values())


def size(fleet: Fleet, constants: Mapping[str, float]) -> Size:
    """Return what a fleet needs. Raises ValueError for one that the model does not cover."""
    rate = fleet.devices / fleet.interval_s
    clusters, each, bound = _clusters(fleet, rate, constants)
    nodes, others = clusters * each, max(1, each - 1)
    led_us, followed_us = _message_us(fleet, constants)
    kept_bytes = fleet.payload_bytes + constants["record"]
    shipped = rate * kept_bytes * (each - 1)
    daily_gb = rate * kept_bytes * _DAY_S / _GB
    memory_gib = _memory_gib(fleet, fleet.devices / (clusters * others), fleet.devices / nodes, constants)
    writes = _writes_per_s(fleet, rate, constants) * _DAY_S
    local_gb, bucket_gb = daily_gb * each * fleet.local_days, daily_gb / fleet.compression
    connects = constants["connects with TLS" if fleet.tls else "connects"]
    reconnect_s = constants["without a leader"] + fleet.devices / nodes / others / connects
    cores = int(nodes * constants["cores"])
    return Size(
        messages_per_s=rate,
        clusters=clusters,
        nodes=nodes,
        bound=bound,
        cores=cores,
        node_busy=rate / nodes * (led_us + (each - 1) * followed_us) / 1e6,
        node_busy_alone=min(1.0, rate / nodes * constants["lone message"] / 1e6),
        node_memory_gib=memory_gib,
        node_disk_gb=local_gb / nodes,
        node_disk_mb_per_s=rate * kept_bytes / clusters / 1e6,
        node_network_mb_per_s=(rate * fleet.payload_bytes + 2 * shipped + rate * kept_bytes) / nodes / 1e6,
        local_gb_per_day=daily_gb * each,
        bucket_gb_per_day=bucket_gb,
        bucket_tb=bucket_gb * fleet.bucket_days / 1e3,
        bucket_writes_per_day=writes,
        reconnect_s=reconnect_s if fleet.replicas > 1 else 0.0,
        state_mb=fleet.devices / nodes * constants["state"] / 1e6,
        etcd_per_s=nodes * constants["etcd requests"] if fleet.replicas > 1 else 0.0,
        costs={
            "cores": cores * constants["price of core"],
            "memory": nodes * memory_gib * constants["price of memory"],
            "disks": local_gb * constants["price of disk"],
            "bucket": bucket_gb * fleet.bucket_days * constants["price of bucket"],
            "requests": writes * _MONTH_DAYS / 1e6 * constants["price of requests"],
            "traffic": shipped * _DAY_S * _MONTH_DAYS / _GB * constants["price of traffic"],
        },
    )


def _writes_per_s(fleet: Fleet, rate: float, constants: Mapping[str, float]) -> float:
    """Return the requests that write to the bucket: for each segment the parts of both objects, a list, a
    manifest."""
    records_bytes = constants["segment"] * 2**20
    index_bytes = records_bytes / fleet.payload_bytes * constants["record"]
    parts = [
        1.0 if one <= _PART_BYTES else 2 + math.ceil(one / _PART_BYTES)
        for one in (records_bytes / fleet.compression, index_bytes)
    ]
    return rate * fleet.payload_bytes / records_bytes * (sum(parts) + 2)


def _message_us(fleet: Fleet, constants: Mapping[str, float]) -> tuple[float, float]:
    """Return the processor time that a message costs the node that leads it, and each other node of the cluster."""
    if fleet.replicas == 1:
        return constants["single message"], 0.0
    return constants["led message"], constants["followed message"]


def _clusters(fleet: Fleet, rate: float, constants: Mapping[str, float]) -> tuple[int, int, str]:
    """Return the number of clusters, the nodes of each, and what asks for so many: the fewest nodes in all, in the
    fewest clusters."""
    if fleet.replicas == 1:
        if fleet.clusters not in (None, 1):
            raise ValueError(
                f"invalid --clusters {fleet.clusters}: expected 1 with --replicas 1, which is one server"
            )
        nodes, bound = _nodes(fleet, fleet.devices, rate, constants)
        if nodes > 1:
            raise ValueError(f"one server is not enough for {fleet.devices:,} devices; expected --replicas 3")
        return 1, 1, bound
    found: tuple[int, int, str] | None = None
    most = _MOST_NODES
    clusters = fleet.clusters or 1
    while clusters * fleet.replicas <= most:
        nodes, bound = _nodes(fleet, fleet.devices / clusters, rate / clusters, constants)
        if clusters * nodes <= most:
            found, most = (clusters, int(nodes), bound), int(clusters * nodes) - 1
        if fleet.clusters:
            break
        clusters += 1
    if found is None:
        divided = f" with --clusters {fleet.clusters}" if fleet.clusters else ""
        raise ValueError(
            f"invalid fleet: expected one of at most {_MOST_NODES:,} nodes{divided}, got {rate:,.0f} "
            f"messages/s of {fleet.devices:,} devices"
        )
    return found


def _nodes(fleet: Fleet, devices: float, rate: float, constants: Mapping[str, float]) -> tuple[float, str]:
    """Return the least number of nodes of a cluster, infinite for one whose nodes cannot follow the rest of it; and
    what asks for it."""
    led_us, followed_us = _message_us(fleet, constants)

    def busy(limit: float) -> float:
        free = limit - rate * followed_us / 1e6
        return math.ceil(rate * (led_us - followed_us) / 1e6 / free) if free > 0 else math.inf

    away = 1 if fleet.replicas > 1 else 0
    least = {
        "replicas": fleet.replicas,
        "processor": busy(constants["busy"]),
        "processor, one away": busy(constants["busy without one"]) + away,
        "connections, one away": math.ceil(devices / constants["connections"]) + away,
    }
    bound = max(least, key=lambda name: least[name])
    return least[bound], bound


def _memory_gib(fleet: Fleet, connections: float, sessions: float, constants: Mapping[str, float]) -> float:
    """Return the memory of a node that has the clients of a lost one as well."""
    each_kib = constants["connection"] + constants["connection in the kernel"]
    each_kib += constants["connection with TLS"] if fleet.tls else 0.0
    used_kib = connections * each_kib + 2 * sessions * constants["session"] + constants["process"] * 1024
    return used_kib / 2**20 / (1 - constants["free memory"])
