"""Where replicas and leaders shall be, and the next steps to have them there: functions of what etcd has, without I/O.

The place of a shard depends on the nodes alone (rendezvous hashing), so a node that comes or goes moves what it has to
and nothing else, and every node finds the same. A step is one transaction on the record of one shard; a step that is
late is refused by its revision. So nothing here is needed for safety, and two balancers at once do no harm.
"""

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from timestone_cluster.shard_record import ShardRecord, node_of

MOST_COPIES = 2
"""Shards that are copied to another node at a time."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster, registered or away."""

    zone: str = ""
    weight: int = 1
    run: int = 0
    """Create revision of its registration; 0 while it is away."""
    away_s: float = 0.0
    is_leaving: bool = False
    """Whether it shall hold nothing."""
    is_draining: bool = False
    """Whether it shall lead and copy nothing, because it will be stopped or its disk is full."""
    is_behind: bool = False
    """Whether it shall lead nothing yet, because clients would wait for what it copies."""

    @property
    def is_ready(self) -> bool:
        """Return whether it may copy a shard."""
        return self.run > 0 and not self.is_leaving and not self.is_draining

    @property
    def may_lead(self) -> bool:
        """Return whether a leader may hand over to it."""
        return self.is_ready and not self.is_behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the next steps depend on."""

    nodes: Mapping[str, Member]
    """By id: all that a record names, and all others that may hold something."""
    shards: Mapping[int, ShardRecord]
    replicas: int
    min_isr: int
    pinned: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Nodes of shards that were placed by command."""
    near: Mapping[int, str] = field(default_factory=dict)
    """Nodes through which most clients of a shard come in."""
    wanted: Mapping[int, str] = field(default_factory=dict)
    """Hand-overs under way: the next leader by the number of the shard."""
    vain: frozenset[int] = frozenset()
    """Shards whose leader has lately not handed over."""
    replace_after_s: float = 900.0
    leader_pause_s: float = 60.0
    handed_s: float = math.inf
    """Time since the last hand-over that was wanted."""


@dataclass(frozen=True, slots=True)
class Change:
    """Put another record in the place of the one of a shard."""

    shard: int
    record: ShardRecord
    reason: str
    present: str | None = None
    """Node that has to be registered as it was."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Have the leader of a shard hand over to a node that is in sync, or `after` its generation lead another one."""

    shard: int
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Want no hand-over of a shard any more: it is done, or cannot be."""

    shard: int


Step = Change | HandOver | Settle


def placed(number: int, nodes: Mapping[str, Member], count: int) -> tuple[str, ...]:
    """Return the nodes that shall hold a shard, the preferred leader first: those with the highest scores, in different
    zones while there are any. Fewer than `count` if there are fewer nodes."""
    return _placed(number, tuple(sorted((node, one.weight, one.zone) for node, one in nodes.items())), count)


@functools.lru_cache(1 << 12)
def _placed(number: int, nodes: tuple[tuple[str, int, str], ...], count: int) -> tuple[str, ...]:
    zones = {node: zone for node, _, zone in nodes}
    ranked = [node for node, weight, _ in sorted(nodes, key=lambda one: (-_score(number, *one[:2]), one[0]))]
    chosen: list[str] = []
    while len(chosen) < min(count, len(ranked)):
        used = Counter(zones[one] for one in chosen)
        left = (one for one in ranked if one not in chosen)
        chosen.append(min(left, key=lambda one: used[zones[one]]))  # of equal ones the first
    return tuple(chosen)


@functools.lru_cache(1 << 16)
def _score(number: int, node: str, weight: int) -> float:
    """Return a number that is the highest for each node with the chance of its weight (weighted rendezvous hashing)."""
    digest = hashlib.blake2b(f"{number}/{node}".encode(), digest_size=8).digest()
    return -weight / math.log((int.from_bytes(digest, "little") + 0.5) / 2**64)


def after(generation: int) -> str:
    """Return what stands for a next leader that has no name: the one that is elected once this leader has resigned."""
    return f"after {generation}"


def goal(situation: Situation, number: int) -> tuple[str, ...]:
    """Return the nodes that shall hold a shard. One that is away keeps its place for a while, but gets no
    new one; where too few are left, those that hold the shard stay."""
    record = situation.shards.get(number)
    holding = record.nodes if record is not None else ()
    usable = {
        node: one
        for node, one in situation.nodes.items()
        if not one.is_leaving and (one.run or (node in holding and one.away_s < situation.replace_after_s))
    }
    pinned = [node for node in situation.pinned.get(number, ()) if node in usable]
    by_score = placed(number, usable, situation.replicas)
    order = (
        *pinned,
        *(node for node in by_score if node == situation.near.get(number)),
        *by_score,
        *(record.replicas if record is not None else ()),
    )
    return tuple(dict.fromkeys(order))[: situation.replicas]


def next_steps(situation: Situation) -> list[Step]:
    """Return what is to be done now, at most one step a shard; empty when all is where it shall be, or has to wait."""
    steps: list[Step] = [
        Settle(number)
        for number, node in situation.wanted.items()
        if not _is_pending(situation, number, node)
    ]
    led = {number: one for number, one in situation.shards.items() if is_led(situation, one)}
    copies = sum(bool(record.adding) for record in led.values())
    may_hand_over = not situation.wanted
    for number in sorted(led, key=lambda one: (-_urgency(situation, led[one]), one)):
        step = next(_steps(situation, number, led[number]), None)
        is_copy = isinstance(step, Change) and len(step.record.adding) > len(led[number].adding)
        if step is None or (is_copy and copies >= MOST_COPIES):
            continue
        if isinstance(step, HandOver):
            if not may_hand_over or number in situation.vain:
                continue
            may_hand_over = False
        copies += is_copy
        steps.append(step)
    return steps


def is_led(situation: Situation, record: ShardRecord) -> bool:
    """Return whether the leader of a shard is registered as it was when it was elected."""
    leader = situation.nodes.get(node_of(record.leader)) if record.leader is not None else None
    return leader is not None and leader.run == record.run


def _is_pending(situation: Situation, number: int, node: str) -> bool:
    record, member = situation.shards.get(number), situation.nodes.get(node)
    if record is not None and node == after(record.generation):
        return is_led(situation, record)
    if record is None or member is None or not member.run or not is_led(situation, record):
        return False
    return node != node_of(record.leader or "") and node in map(node_of, record.isr)


def _urgency(situation: Situation, record: ShardRecord) -> int:
    """Return how many replicas are of no use, or soon will not be."""
    nodes = [situation.nodes[node] for node in record.replicas]
    return sum(2 * (not one.run) + one.is_leaving for one in nodes)


def _steps(situation: Situation, number: int, record: ShardRecord) -> Iterator[Step]:
    """Yield the possible steps of a shard that is led, the best first."""
    wanted, in_sync = goal(situation, number), {node_of(member) for member in record.isr}
    leader = node_of(record.leader or "")
    able = dict.fromkeys((*wanted, *record.replicas))
    others = [node for node in able if node in in_sync and node != leader]
    ready = [node for node in others if situation.nodes[node].may_lead]
    for node in record.adding:
        away = [one for one in record.replicas if one not in wanted]
        is_short = len(record.replicas) < situation.replicas
        if node in wanted and node in in_sync and is_short:
            if (grown := record.grown(node)) is not None:
                yield Change(number, grown, f"{node} is one more replica", present=node)
        elif node in wanted and node in in_sync and away:
            first = min(away, key=lambda one: (one == leader, one in in_sync, away.index(one)))
            if first == leader:
                yield from (HandOver(number, one, f"{first} gives its place") for one in ready)
            elif (moved := record.moved(node, first, situation.min_isr)) is not None:
                yield Change(number, moved, f"{node} has the place of {first}", present=node)
        elif not (node in wanted and (away or is_short) and situation.nodes[node].run):
            if (spared := record.spared(node, situation.min_isr)) is not None:
                yield Change(number, spared, f"{node} copies it no more")
            elif node == leader:
                yield from (HandOver(number, one, f"{node} holds it no more") for one in ready)
    if record.adding:
        return
    for node in wanted:
        if node not in record.replicas and situation.nodes[node].is_ready:
            if (added := record.adds(node)) is not None:
                yield Change(number, added, f"{node} copies it", present=node)
            elif dict(record.left).get(node) == record.generation:
                running = [one for one in others if situation.nodes[one].run]
                to = (*ready, *running, after(record.generation))[0]
                yield HandOver(number, to, f"{node} comes back, for which another generation has to begin")
    if (ordered := record.ordered(wanted)) is not None:
        yield Change(number, ordered, "its replicas are in another order")
    if (
        ready
        and ready[0] == record.replicas[0] == wanted[0]
        and situation.handed_s >= situation.leader_pause_s
    ):
        yield HandOver(number, ready[0], "the preferred leader")
