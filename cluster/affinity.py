"""Leaders near their clients: which node most clients of a shard come in through, as values and without I/O.

A client that arrives at another node than its leader costs a copy of its bytes there and a way between two nodes. Where
devices of one site use the nodes of that site, their shards are better led there. Nodes write how many clients they
have; the balancer waits until a majority has stood for a while, so that the restart of a node moves nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from timestone_cluster.shard_record import ShardRecord, node_of

FEWEST_CLIENTS = 10
"""A shard with fewer is not led elsewhere because of them."""
_MAJORITY = 0.6
_MINORITY = 0.4
"""Between the two, a shard stays where it is, so that it does not go to and fro."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Clients of a node, by the number of their shard."""

    served: Mapping[int, int] = field(default_factory=dict)
    """Those of the shards that it leads, through whichever node they have come."""
    passed_on: Mapping[int, int] = field(default_factory=dict)
    """Those that have come in here and are served by another node."""


class Affinity:
    """What has stood for how long. One for each balancer, which starts from zero."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[int, str | None], float] = {}

    def due(
        self,
        shards: Mapping[int, ShardRecord],
        arrivals: Mapping[str, Arrivals],
        near: Mapping[int, str],
        *,
        after_s: float,
        now_s: float,
    ) -> dict[int, str | None]:
        """Return the nodes that shall be preferred leaders from now on because most clients come in through them, by
        the shard; None for a shard whose preferred one is that no more. near: those of now. after_s: how long
        it has to have been so."""
        found = dict(_changes(shards, arrivals, near))
        self._since_s = {one: self._since_s.get(one, now_s) for one in found.items()}
        return {
            number: node for (number, node), since_s in self._since_s.items() if now_s - since_s >= after_s
        }


def _changes(
    shards: Mapping[int, ShardRecord], arrivals: Mapping[str, Arrivals], near: Mapping[int, str]
) -> Iterator[tuple[int, str | None]]:
    for number, record in shards.items():
        shares = _shares(number, record, arrivals)
        if not shares:
            continue
        most = max(shares, key=lambda node: shares[node])
        if shares[most] > _MAJORITY:
            if most != near.get(number, node_of(record.leader or "")):
                yield number, most
        elif number in near and shares.get(near[number], 0.0) < _MINORITY:
            yield number, None


def _shares(number: int, record: ShardRecord, arrivals: Mapping[str, Arrivals]) -> dict[str, float]:
    """Return the part of a shard's clients that comes in through each in-sync node; empty if that is not known."""
    leader = node_of(record.leader or "")
    served = arrivals.get(leader, Arrivals()).served.get(number, 0)
    if served < FEWEST_CLIENTS:
        return {}
    others = {node: one.passed_on.get(number, 0) for node, one in arrivals.items() if node != leader}
    in_sync = set(map(node_of, record.isr))
    shares = {node: count / served for node, count in others.items() if node in in_sync}
    return {leader: 1 - sum(others.values()) / served, **shares}
