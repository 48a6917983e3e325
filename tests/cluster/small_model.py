"""A small cluster whose states can be enumerated: the real state machine, a small etcd, a small log.

A global state is a tuple: a number for each node's state, the set of all messages ever sent, and what etcd has.
Messages are never taken out of the set, so each may come late, twice or never, and in any order; so may transactions.
A node's step depends on its own state alone and is computed once.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from timestone_cluster.actions import Alarm, Append, Clear, Cut, Propose, Send, Ship, Show
from timestone_cluster.follower import Follower
from timestone_cluster.frames import Follow, Frame, Held, Records
from timestone_cluster.leader import Leader, Progress
from timestone_cluster.replica import Replica
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard_record import ShardRecord, node_of

LOG = "log"
HOLE = "hole"
"""What compaction leaves of a record."""


class Value(NamedTuple):
    """A record: by which life of which leader it was written, under which topic id."""

    generation: int
    run: int
    topic: int
    is_hole: bool = False
    """Removed by compaction: the place is left, and what the protocol looks at."""


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Bounds:
    """How large the cluster is, and which faults there are how often."""

    nodes: int = 3
    min_isr: int = 2
    records: int = 3
    generations: int = 3
    kills: int = 2
    """A process dies; what it wrote stays."""
    power_cuts: int = 0
    """A machine dies; what was not flushed is lost."""
    lost_disks: int = 0
    damages: int = 0
    ended_leases: int = 0
    """Of nodes that live."""
    changes: int = 2
    """Proposals of leaders: in-sync members admitted and dismissed, resignations, hand-overs."""
    is_written_level: bool = False
    has_stale_watch: bool = False
    has_compaction: bool = False
    is_pruned: bool = False
    """Leave out messages of generations that their receivers know to have ended; the answer of the state machine to
    them is Fenced, which says what etcd says as well."""


@dataclass
class Node:
    """One node: its replica, and its disk."""

    name: str
    replica: Replica | None
    run: int
    boot: int = 0
    records: list[Any] = field(default_factory=list)
    flushed: int = 0
    names: list[str] = field(default_factory=list)
    is_damaged: bool = False

    def values(self, end: int) -> tuple[Any, ...]:
        """Return records as readers see them: with the name of their topic."""
        return tuple(
            HOLE if one.is_hole else (one.generation, one.run, dict(enumerate(self.names)).get(one.topic))
            for one in self.records[:end]
        )


class Step(NamedTuple):
    """The result of a node's step."""

    node: int
    messages: tuple[int, ...]
    shown: int


class Shared(NamedTuple):
    """What is not a node's own: etcd, the budget of faults, and what was ever committed."""

    record: ShardRecord
    revision: int
    leases: tuple[tuple[str, int], ...]
    """Node and run, sorted."""
    next_run: int
    previous: tuple[ShardRecord, int] | None
    history: tuple[Any, ...]
    """Values that were committed, by offset."""
    committers: tuple[tuple[int, str, int], ...]
    """Generation, node, and how far it has committed."""
    budget: tuple[int, ...]

    def spent(self, budget: str) -> "Shared | None":
        """Return the same after one more fault or change of a kind, or None if there was the last one."""
        at = BUDGETS.index(budget)
        if not self.budget[at]:
            return None
        return self._replace(budget=(*self.budget[:at], self.budget[at] - 1, *self.budget[at + 1 :]))

    def registered(self, node: str) -> "Shared":
        """Return the same with a node registered, under a new run."""
        others = [one for one in self.leases if one[0] != node]
        return self._replace(
            leases=tuple(sorted([*others, (node, self.next_run)])), next_run=self.next_run + 1
        )


BUDGETS = ("records", "kills", "power_cuts", "lost_disks", "damages", "ended_leases", "changes")


class State(NamedTuple):
    """A state of the whole cluster. Everything is a number of a table of the model."""

    nodes: tuple[int, ...]
    messages: frozenset[int]
    shared: int


class Event(NamedTuple):
    """A step of the cluster, for traces."""

    name: str
    node: str
    detail: Any = None

    @property
    def summary(self) -> str:
        """Return the step in a few words: node, what it does, and from whom it has what, or with whom."""
        words = [self.node, self.name]
        if self.name == "receives":
            words += [self.detail[0], type(self.detail[1]).__name__]
        elif isinstance(self.detail, tuple):
            words += [one for one in self.detail[1:] if isinstance(one, str)]
        return " ".join(words)


Option = tuple[Event, Callable[[], State | None]]


class Table:
    """Values and their numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


_FIELDS: dict[type, tuple[str, ...]] = {
    Replica: ("member", "run", "min_isr", "logs", "record", "revision", "role", "ended"),
    Leader: (
        "member",
        "generation",
        "min_isr",
        "replicas",
        "nodes",
        "isr",
        "proposals",
        "begin",
        "waiting",
        "followers",
        "is_serving",
    ),
    Follower: ("generation", "leader", "started", "lacking", "observes", "unclean"),
    ReplicaLog: ("start", "end", "names", "durable", "committed", "clean", "stable", "runs", "damaged"),
    Progress: ("sent", "names", "held", "clean"),
    Node: ("name", "replica", "run", "boot", "records", "flushed", "names", "is_damaged"),
}
"""What a copy of each has. The roles share the logs and actions of their replica."""


def _fields(kind: type) -> tuple[str, ...] | None:
    return next((_FIELDS[one] for one in kind.__mro__ if one in _FIELDS), None)


class Frozen(NamedTuple):
    """An object as a value."""

    kind: type
    fields: tuple[Any, ...]


def freeze(value: Any) -> Any:
    """Return an object of the protocol as a value that can be compared and renamed."""
    kind = type(value)
    if kind in (int, str, bool, type(None)):
        return value
    names = _fields(kind)
    if names is not None:
        return Frozen(kind, tuple([freeze(getattr(value, name)) for name in names]))
    if kind is dict:
        return Frozen(dict, tuple(sorted((key, freeze(one)) for key, one in value.items())))
    if kind is set:
        return Frozen(set, (frozenset(value),))
    if kind is list:
        return Frozen(list, tuple(value))
    return value


def thaw(value: Any) -> Any:
    """Return the object of such a value."""
    if type(value) is not Frozen:
        return value
    kind, fields = value
    if kind is dict:
        return {key: thaw(one) for key, one in fields}
    if kind is set:
        return set(fields[0])
    if kind is list:
        return list(fields)
    made: Any = object.__new__(kind)
    names = _fields(kind)
    assert names is not None
    for name, one in zip(names, fields, strict=True):
        setattr(made, name, thaw(one))
    if isinstance(made, Replica):
        made.actions = []
        if made.role is not None:
            made.role.logs, made.role.actions = made.logs, made.actions
    return made


def rename(value: Any, names: dict[str, str]) -> Any:
    """Return a value with other names of nodes."""
    kind = type(value)
    if kind is str:
        return names.get(value, value)
    if kind in (int, bool, type(None)):
        return value
    if kind is Frozen:
        fields = rename(value.fields, names)
        return Frozen(value.kind, tuple(sorted(fields)) if value.kind is dict else fields)
    if kind is frozenset:
        return frozenset(rename(one, names) for one in value)
    if kind is tuple:
        return tuple([rename(one, names) for one in value])
    if hasattr(kind, "_fields"):
        return kind(*[rename(one, names) for one in value])
    if issubclass(kind, msgspec.Struct):
        return kind(*[rename(getattr(value, name), names) for name in kind.__struct_fields__])
    if dataclasses.is_dataclass(kind):
        return kind(*[rename(getattr(value, one.name), names) for one in dataclasses.fields(kind)])
    return value


class Model:
    """All steps of a small cluster. Subclasses are mutants."""

    replica_type: type[Replica] = Replica
    log_type: type[ReplicaLog] = ReplicaLog

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.names = tuple("abcde"[: bounds.nodes])
        self.nodes, self.messages, self.shared = Table(), Table(), Table()
        self._steps: dict[tuple[int, Any], Step | None] = {}
        self._facts: dict[int, Any] = {}
        self._renamed: dict[Any, int] = {}
        self._kinds: dict[int, int] = {}
        orders = list(itertools.permutations(self.names))
        self._places = [[self.names.index(name) for name in order] for order in orders]
        lives = [dict(zip(self.names, order, strict=True)) for order in orders]
        self._permutations = [
            {
                f"{old}{life}": f"{new}{life}"
                for old, new in names.items()
                for life in ("", "@0", "@1", "@2", "'")
            }
            for names in lives
        ]

    def sender(self, member: str, present: dict[str, str]) -> str:
        """Return from whom a message is that a member has sent. present: members by their machine."""
        return member

    # The beginning.

    def member(self, node: Node) -> str:
        """Return the identity of a node's replica: of its disk, and where memory counts of its boot."""
        return f"{node.name}@{node.boot}" if self.bounds.is_written_level else node.name

    def first(self) -> State:
        """Return the state in which all nodes are up, and none leads."""
        nodes = [Node(name, None, run) for run, name in enumerate(self.names, 1)]
        record = ShardRecord.first(tuple(self.member(node) for node in nodes))
        for node in nodes:
            self._start(node, record, 1)
        shared = Shared(
            record,
            1,
            tuple((node.name, node.run) for node in nodes),
            len(nodes) + 1,
            None,
            (),
            (),
            tuple(getattr(self.bounds, name) for name in BUDGETS),
        )
        numbers = tuple(self.nodes.number(freeze(node)) for node in nodes)
        return State(numbers, frozenset(), self.shared.number(shared))

    def begun(self) -> State:
        """Return the state in which the first node leads generation 1 and serves, and the others follow."""
        script = ["a stands", "etcd agrees", "a sees"]
        a, *others = [self.facts(number).member for number in self.first().nodes]
        for member in others:
            script += [
                f"{node_of(member)} sees",
                f"{a} receives {member} Follow",
                f"{member} receives {a} Started",
            ]
        state = self.after(self.first(), script)
        live = [n for n in state.messages if self.messages.values[n][1] != "etcd"]
        return state._replace(messages=frozenset(live))

    def after(self, state: State, script: Iterable[str]) -> State:
        """Return the state after steps that are named as in `Event.summary`. Raises Broken."""
        for line in script:
            found = [after for event, after in self.next(state) if event.summary.startswith(line)]
            if not found:
                raise ValueError(
                    f"invalid step {line!r}: expected one of {[e.summary for e, _ in self.next(state)]}"
                )
            state = found[0]
            self.check(state)
        return state

    def _start(self, node: Node, record: ShardRecord, revision: int) -> None:
        """Begin a life of a node: what its disk has is all that it knows, and the record as it is."""
        log = self.log_type(durable=node.flushed if not self.bounds.is_written_level else len(node.records))
        for end, one in enumerate(node.records, 1):
            names = max(log.names, one.topic + 1)
            log.extend(one.generation, end, names)
        log.damaged = node.is_damaged
        del node.names[log.names :]
        node.replica = self.replica_type(self.member(node), node.run, self.bounds.min_isr, {LOG: log})
        node.replica.record_seen(record, revision)

    # A node's steps.

    def step(self, number: int, event: tuple[Any, ...]) -> Step | None:
        """Return what a node does in an event, or None if that changes nothing."""
        key = number, event
        if key not in self._steps:
            node = thaw(self.nodes.values[number])
            getattr(self, f"_on_{event[0]}")(node, *event[1:])
            messages, shown = self._perform(node)
            step = Step(self.nodes.number(freeze(node)), messages, shown)
            self._steps[key] = None if step == (number, (), 0) else step
        return self._steps[key]

    def _on_receive(self, node: Node, member: str, frame: Frame) -> None:
        assert node.replica is not None
        node.replica.received(member, frame)

    def _on_see(self, node: Node, record: ShardRecord, revision: int) -> None:
        assert node.replica is not None
        node.replica.record_seen(record, revision)

    def _on_append(self, node: Node) -> None:
        assert node.replica is not None and isinstance(node.replica.role, Leader)
        generation = node.replica.role.generation
        node.records.append(Value(generation, node.run, len(node.names)))
        node.names.append(f"topic {len(node.names)} of {generation}")
        node.replica.appended(LOG, len(node.records), len(node.names))
        if self.bounds.is_written_level:
            node.replica.durable(LOG, len(node.records))

    def _on_flush(self, node: Node) -> None:
        assert node.replica is not None
        node.flushed = len(node.records)
        node.replica.durable(LOG, node.flushed)

    def _on_propose(self, node: Node, name: str, *arguments: Any) -> None:
        getattr(node.replica, name)(*arguments)

    def _on_stop(self, node: Node, is_power_cut: bool) -> None:
        node.replica = None
        if is_power_cut:
            del node.records[node.flushed :]
            node.boot += 1

    def _on_damage(self, node: Node) -> None:
        node.records.pop()
        node.flushed = min(node.flushed, len(node.records))
        node.is_damaged = True

    def _on_repair(self, node: Node) -> None:
        assert node.replica is not None
        node.is_damaged = False
        node.replica.repaired(LOG)

    def _on_compact(self, node: Node) -> None:
        """Remove what a later record of the same key replaces, and tombstones where no replica has what they delete.
        The one key of the model is written first and deleted by each later record."""
        assert node.replica is not None
        log = node.replica.logs[LOG]
        settled = min(log.committed, node.flushed)
        for offset in (*range(settled - 1), *range(1, min(log.stable, settled))):
            node.records[offset] = node.records[offset]._replace(is_hole=True)
        node.replica.compacted(LOG, settled)

    def _on_lose_disk(self, node: Node) -> None:
        node.replica = None
        node.records, node.names, node.flushed = [], [], 0
        node.name = self.new_identity(node.name)

    def new_identity(self, name: str) -> str:
        """Return the identity of a node with a new disk."""
        return f"{name}'"

    def _on_start(self, node: Node, run: int, record: ShardRecord, revision: int) -> None:
        node.run = run
        self._start(node, record, revision)

    def _perform(self, node: Node) -> tuple[tuple[int, ...], int]:
        """Do what the replica asks for. Return what it sends, and up to where it has shown records now."""
        sent: list[int] = []
        shown = 0
        replica = node.replica
        while replica is not None and (actions := replica.take_actions()):
            for action in actions:
                match action:
                    case Send(member, frame):
                        sent.append(self.messages.number((replica.member, member, frame)))
                    case Ship():
                        sent += self._frames(node, action)
                    case Append(frame):
                        node.names[frame.names_first :] = frame.names
                        node.records += cast(tuple[Value, ...], frame.data)
                        if self.bounds.is_written_level:
                            replica.durable(LOG, len(node.records))
                    case Cut(_, offset, names):
                        del node.records[offset:]
                        del node.names[names:]
                        node.flushed = min(node.flushed, offset)
                    case Clear():
                        node.records, node.names, node.flushed = [], [], 0
                    case Show(_, committed):
                        shown = committed
                    case Propose():
                        sent.append(self.messages.number((replica.member, "etcd", action)))
                    case Alarm(reason):
                        raise Broken(reason)
        return tuple(sent), shown

    def _frames(self, node: Node, ship: Ship) -> Iterator[int]:
        """Read records and make frames of them, one for each generation."""
        assert node.replica is not None
        first, names = ship.first, ship.names
        values = node.records[first : ship.end]
        for generation, group in itertools.groupby(values, key=lambda value: value.generation):
            data = tuple(group)
            end_names = max(names, *(value.topic + 1 for value in data))
            frame = Records(
                node.replica.generation, LOG, first, first + len(data), generation,
                names, tuple(node.names[names:end_names]), data,
            )  # fmt: skip
            yield self.messages.number((node.replica.member, ship.member, frame))
            first, names = first + len(data), end_names

    # The cluster's steps.

    def next(self, state: State) -> Iterator[tuple[Event, State]]:
        """Return every step that changes a state, and the state after it. Raises Broken."""
        for event, make in self.options(state):
            after = make()
            if after is not None and after != state:
                yield event, after

    def options(self, state: State) -> Iterator[Option]:
        """Return every step that is possible in a state, and a function that takes it: to the state after it, or to
        None if it changes nothing. The function raises Broken."""
        shared: Shared = self.shared.values[state.shared]
        yield from self._deliveries(state, shared)
        names = {self.facts(number).name for number in state.nodes}
        for node, _ in shared.leases:
            if node not in names:
                yield self._lease_ends(state, shared, node)
        for place, number in enumerate(state.nodes):
            facts = self.facts(number)
            if facts.is_up:
                yield from self._own_steps(state, shared, place, facts)
            else:
                yield from self._while_down(state, shared, place, facts)

    def _take(self, state: State, shared: Shared, place: int, event: tuple[Any, ...]) -> State | None:
        step = self.step(state.nodes[place], event)
        return None if step is None else self._after(state, shared, place, step)

    def _lease_ends(self, state: State, shared: Shared, node: str) -> Option:
        after = shared._replace(leases=tuple(one for one in shared.leases if one[0] != node))
        return Event("lease ends", node), lambda: state._replace(shared=self.shared.number(after))

    def _deliveries(self, state: State, shared: Shared) -> Iterator[Option]:
        places = {self.facts(number).member: place for place, number in enumerate(state.nodes)}
        machines = {self.facts(number).name: place for place, number in enumerate(state.nodes)}
        present = {node_of(member): member for member in places}
        for number in state.messages:
            sender, receiver, content = self.messages.values[number]
            if receiver == "etcd":
                if content.revision == shared.revision:
                    yield from self._transaction(state, shared, sender, content, places)
                continue
            # One that was booted again gets what was for the member that it was: a link knows the machine.
            place = machines.get(node_of(receiver))
            if place is not None and self.facts(state.nodes[place]).is_up:
                known = self.sender(sender, present)
                at = receiver if receiver in places else node_of(receiver)
                event = Event("receives", at, (known, content))
                yield event, partial(self._take, state, shared, place, ("receive", known, content))

    def _transaction(
        self, state: State, shared: Shared, sender: str, proposal: Propose, places: dict[str, int]
    ) -> Iterator[Option]:
        runs, place = dict(shared.leases), places.get(sender)
        if proposal.present is not None and runs.get(proposal.present[0]) != proposal.present[1]:
            if place is not None and self.facts(state.nodes[place]).revision == proposal.revision:
                event = Event("is refused", sender, proposal.record)
                yield event, partial(self._take, state, shared, place, ("propose", "refused", proposal))
            return
        absent = proposal.absent
        is_absent = absent is None or runs.get(absent[0]) != absent[1]
        if is_absent and proposal.record.generation <= self.bounds.generations:
            take = partial(self._agree, state, shared, proposal.record)
            yield Event("agrees", "etcd", proposal.record), take

    def _agree(self, state: State, shared: Shared, record: ShardRecord) -> State:
        if len(record.isr) < self.bounds.min_isr:
            raise Broken(f"in-sync members are {sorted(record.isr)}")
        previous = (shared.record, shared.revision) if self.bounds.has_stale_watch else None
        after = shared._replace(record=record, revision=shared.revision + 1, previous=previous)
        live = [
            number
            for number in state.messages
            if (content := self.messages.values[number])[1] != "etcd" or content[2].revision > shared.revision
        ]
        return state._replace(messages=frozenset(live), shared=self.shared.number(after))

    def _own_steps(self, state: State, shared: Shared, place: int, facts: "Facts") -> Iterator[Option]:
        def take(name: str, *event: Any, after: Shared | None = shared) -> Iterator[Option]:
            if after is not None:
                yield (
                    Event(name, facts.name, event[1:] or None),
                    partial(self._take, state, after, place, event),
                )

        runs = dict(shared.leases)
        if facts.revision < shared.revision:
            yield from take("sees", "see", shared.record, shared.revision)
        if shared.previous is not None and facts.revision > shared.previous[1]:
            yield from take("sees late", "see", *shared.previous)
        if facts.is_serving:
            yield from take("appends", "append", after=shared.spent("records"))
        if facts.flushed < facts.end:
            yield from take("flushes", "flush")
        if self.bounds.has_compaction:
            yield from take("compacts", "compact")
        if facts.is_damaged and facts.has_started and len(facts.values) >= len(shared.history):
            yield from take("is repaired", "repair")
        leader = shared.record.leader
        is_gone = leader in (None, facts.member) or runs.get(node_of(leader)) != shared.record.run
        if (
            facts.may_stand and is_gone
        ):  # a run that is gone does not come back: no node can see this too early
            yield from take("stands", "propose", "stand")
        elif not facts.is_leading:
            yield from take("follows again", "propose", "follow_again")
        if facts.is_leading:
            yield from self._changes(state, shared, runs, take)
        yield from take("is killed", "stop", False, after=shared.spent("kills"))
        yield from take("loses power", "stop", True, after=shared.spent("power_cuts"))
        yield from take("loses its disk", "lose_disk", after=shared.spent("lost_disks"))
        if runs.get(facts.name) == facts.run and (after := shared.spent("ended_leases")) is not None:
            yield self._lease_ends(state, after, facts.name)
        if facts.name not in runs:
            yield from take(
                "registers", "propose", "registered", shared.next_run, after=shared.registered(facts.name)
            )

    def _changes(
        self, state: State, shared: Shared, runs: dict[str, int], take: Callable[..., Iterator[Option]]
    ) -> Iterator[Option]:
        after = shared.spent("changes")
        present = {facts.member: facts.name for facts in map(self.facts, state.nodes)}
        for member, name in present.items():
            if member in shared.record.isr:
                yield from take("dismisses", "propose", "dismiss", member, after=after)
                yield from take("hands over", "propose", "hand_over", member, runs.get(name, 0), after=after)
            else:
                yield from take("admits", "propose", "admit", member, runs.get(name, 0), after=after)
        for member in sorted(shared.record.isr - present.keys()):
            yield from take("dismisses", "propose", "dismiss", member, after=after)
        yield from take("resigns", "propose", "resign", after=after)

    def _while_down(self, state: State, shared: Shared, place: int, facts: "Facts") -> Iterator[Option]:
        after = shared.spent("damages")
        if after is not None and facts.end:
            yield Event("is damaged", facts.name), partial(self._take, state, after, place, ("damage",))
        if facts.name in dict(shared.leases):
            yield self._lease_ends(state, shared, facts.name)
        if facts.name not in shared.record.replicas and (added := shared.record.adds(facts.name)):
            # A new disk is a new node, which the operator adds.
            shared = shared._replace(record=added, revision=shared.revision + 1)
        event = ("start", shared.next_run, shared.record, shared.revision)
        yield (
            Event("starts", facts.name),
            partial(self._take, state, shared.registered(facts.name), place, event),
        )

    def _after(self, state: State, shared: Shared, place: int, step: Step) -> State:
        nodes = (*state.nodes[:place], step.node, *state.nodes[place + 1 :])
        messages = state.messages
        if step.messages:
            messages = messages.union(step.messages)
        if step.shown:
            shared = self._shown(shared, self.facts(step.node), step.shown)
        return State(nodes, messages, self.shared.number(shared))

    def _shown(self, shared: Shared, facts: "Facts", committed: int) -> Shared:
        """Note what a node shows, which must be what was ever shown there. Only a leader may be the first to do so."""
        values = facts.values[:committed]
        if len(values) < committed:
            raise Broken(f"{facts.name} shows {committed} records and has {len(values)}")
        for offset, (one, other) in enumerate(zip(values, shared.history, strict=False)):
            if one != other and HOLE not in (one, other):
                raise Broken(f"{facts.name} shows {one} at {offset}, where {other} was shown")
        if not facts.is_leading:
            if committed > len(shared.history):
                raise Broken(
                    f"{facts.name} shows {committed} records of which {len(shared.history)} are committed"
                )
            return shared
        committers = {generation: (name, upto) for generation, name, upto in shared.committers}
        name, upto = committers.get(facts.generation, (facts.name, 0))
        if name != facts.name:
            raise Broken(f"{name} and {facts.name} commit in generation {facts.generation}")
        committers[facts.generation] = name, max(upto, committed)
        return shared._replace(
            history=shared.history + values[len(shared.history) :],
            committers=tuple((one, *committers[one]) for one in sorted(committers)),
        )

    # What must hold.

    def facts(self, number: int) -> "Facts":
        """Return what the invariants look at of a node's state."""
        if number not in self._facts:
            self._facts[number] = _facts_of(self, thaw(self.nodes.values[number]))
        found: Facts = self._facts[number]
        return found

    def check(self, state: State) -> None:
        """Raise Broken unless every invariant holds."""
        shared: Shared = self.shared.values[state.shared]
        history = shared.history
        for facts in map(self.facts, state.nodes):
            if facts.member in shared.record.isr and not facts.is_damaged and not _has(facts.safe, history):
                raise Broken(f"{facts.member} is in sync and has {facts.safe} of {history}")
            if facts.is_leading and facts.generation == shared.record.generation:
                if not _has(facts.values, history):
                    raise Broken(f"{facts.name} leads and has {facts.values} of {history}")
                earlier = max(
                    (upto for generation, _, upto in shared.committers if generation < facts.generation),
                    default=0,
                )
                if facts.is_serving and facts.committed < earlier:
                    raise Broken(f"{facts.name} serves {facts.committed} records where {earlier} were shown")

            is_undeleted = facts.values[:1] not in ((), (HOLE,)) and set(facts.values[1:]) == {HOLE}
            if is_undeleted and len(facts.values) >= len(history):
                raise Broken(
                    f"{facts.name} has the first record, and nothing that deletes it: {facts.values}"
                )

    # Fewer states.

    def pruned(self, state: State) -> State:
        """Return a state without the messages that cannot have an effect any more: those to a leader that does not lead
        their generation and never will, and those to followers that know of a newer one or are about to."""
        shared: Shared = self.shared.values[state.shared]
        record = shared.record
        known = {facts.name: facts for facts in map(self.facts, state.nodes)}

        def has_effect(number: int) -> bool:
            _, receiver, content = self.messages.values[number]
            if receiver == "etcd":
                return bool(content.revision == shared.revision)
            facts = known.get(node_of(receiver))
            if facts is None:
                return False
            generation = content.generation
            if isinstance(content, Follow | Held):
                is_elected = (record.generation, record.leader, record.run) == (
                    generation,
                    receiver,
                    facts.run,
                )
                return facts.is_up and (is_elected or (facts.is_leading and facts.generation == generation))
            return generation == record.generation or (facts.is_up and facts.known == generation)

        live = [number for number in state.messages if has_effect(number)]
        return state if len(live) == len(state.messages) else state._replace(messages=frozenset(live))

    # Symmetry.

    def canonical(self, state: State) -> State:
        """Return the same state for all states that differ by the names of nodes alone: nodes are sorted by what they
        are, not by what they are called. The least one counts where two are alike."""
        if self.bounds.is_pruned:
            state = self.pruned(state)
        kinds = [self._kind(number) for number in state.nodes]
        order = sorted(kinds)
        fitting = [
            self._permuted(state, index)
            for index, places in enumerate(self._places)
            if all(order[new] == kinds[old] for old, new in enumerate(places))
        ]
        if len(fitting) == 1:
            return fitting[0]
        return min(fitting, key=lambda one: (one.nodes, one.shared, sorted(one.messages)))

    def _kind(self, number: int) -> int:
        """Return a number that all nodes have whose states differ by the names of nodes alone."""
        found = self._kinds.get(number)
        if found is None:
            alike = [self._rename("nodes", self.nodes, number, index) for index in range(len(self._places))]
            found = self._kinds[number] = min(alike)
        return found

    def _permuted(self, state: State, index: int) -> State:
        if index == 0:
            return state
        nodes = [0] * len(state.nodes)
        for number, place in zip(state.nodes, self._places[index], strict=True):
            nodes[place] = self._rename("nodes", self.nodes, number, index)
        return State(
            tuple(nodes),
            frozenset([self._rename("messages", self.messages, number, index) for number in state.messages]),
            self._rename("shared", self.shared, state.shared, index),
        )

    def _rename(self, kind: str, table: Table, number: int, index: int) -> int:
        key = kind, number, index
        found = self._renamed.get(key)
        if found is None:
            value = rename(table.values[number], self._permutations[index])
            if kind == "shared":
                value = value._replace(leases=tuple(sorted(value.leases)))
            found = self._renamed[key] = table.number(value)
        return found


def _has(values: tuple[Any, ...], history: tuple[Any, ...]) -> bool:
    return len(values) >= len(history) and all(
        one == other or HOLE in (one, other) for one, other in zip(values, history, strict=False)
    )


class Facts(NamedTuple):
    """What the invariants and the list of steps look at."""

    name: str
    member: str
    run: int
    is_up: bool
    is_leading: bool
    is_serving: bool
    is_damaged: bool
    has_started: bool
    may_stand: bool
    generation: int
    known: int
    revision: int
    end: int
    flushed: int
    committed: int
    values: tuple[Any, ...]
    safe: tuple[Any, ...]
    """Records that the node has after the worst that the acknowledgement level allows for."""


def _facts_of(model: Model, node: Node) -> Facts:
    replica = node.replica
    is_leading = replica is not None and isinstance(replica.role, Leader)
    end = len(node.records)
    return Facts(
        node.name,
        model.member(node),
        node.run,
        replica is not None,
        is_leading,
        replica is not None and replica.is_serving,
        node.is_damaged,
        replica is not None and isinstance(replica.role, Follower) and LOG in replica.role.started,
        replica is not None and replica.may_stand,
        replica.role.generation if replica is not None and replica.role is not None else 0,
        replica.generation if replica is not None else 0,
        replica.revision if replica is not None else 0,
        end,
        node.flushed,
        replica.logs[LOG].committed if replica is not None else 0,
        node.values(end),
        node.values(end if model.bounds.is_written_level else node.flushed),
    )
