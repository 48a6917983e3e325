"""Where replicas shall be, and the steps to have them there: in clusters drawn at random, whose nodes copy, elect and
dismiss as they may."""

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from timestone_cluster.balancer import (
    MOST_COPIES,
    Change,
    HandOver,
    Member,
    Settle,
    Situation,
    after,
    goal,
    next_steps,
    placed,
)
from timestone_cluster.shard_record import ShardRecord

NAMES = [f"{letter}{number}" for letter in "pqr" for number in range(4)]
MIN_ISR = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3}


@dataclass
class Cluster:
    """Nodes that do what the protocol lets them do, at once."""

    situation: Situation
    copies: int = 0
    hand_overs: int = 0
    wanted: dict[int, str] = field(default_factory=dict)

    def settle(self) -> None:
        """Take steps until none is left. Between them every shard that can elect has a leader."""
        for _ in range(500):
            self.situation = replace(self.situation, wanted=dict(self.wanted))
            for number in self.situation.shards:
                self._work(number)
            steps = next_steps(self.situation)
            if not steps:
                return
            assert len({(type(one) is Settle, one.shard) for one in steps}) == len(steps)
            runs = {node: one.run for node, one in self.situation.nodes.items()}
            led = [one for one in self.situation.shards.values() if runs.get(one.leader or "") == one.run]
            copying, before = sum(bool(one.adding) for one in led), self.copies
            for step in steps:
                self._take(step)
            assert self.copies == before or copying + self.copies - before <= MOST_COPIES
        raise AssertionError(f"no rest: {next_steps(self.situation)} in {self.situation}")

    def _take(self, step: Change | HandOver | Settle) -> None:
        match step:
            case Settle(number):
                del self.wanted[number]
            case HandOver(number, node):
                assert not self.wanted
                self.hand_overs += 1
                self.wanted[number] = node
            case Change(number, record):
                before = self.situation.shards[number]
                self.copies += len(record.adding) > len(before.adding)
                self._put(number, record)

    def _put(self, number: int, record: ShardRecord | None) -> None:
        if record is None:
            return
        before = self.situation.shards[number]
        assert len(record.isr) >= min(self.situation.min_isr, len(before.isr)), "never below the minimum"
        assert len(before.replicas) <= len(record.replicas) <= self.situation.replicas
        self.situation = replace(self.situation, shards={**self.situation.shards, number: record})

    def _work(self, number: int) -> None:
        nodes, minimum = self.situation.nodes, self.situation.min_isr

        def now() -> ShardRecord:
            return self.situation.shards[number]

        leader = now().leader
        if leader is None or nodes[leader].run != now().run:
            able = [one for one in sorted(now().isr) if nodes[one].run]
            if not able:
                return
            self._put(number, now().elected(able[0], nodes[able[0]].run, minimum))
        for node in now().nodes:
            if nodes[node].run:
                self._put(number, now().admitted(node))
        for member in sorted(now().isr):
            if not nodes[member].run:
                self._put(number, now().dismissed(member, minimum))
        for node in dict(now().left):
            if nodes[node].run:
                self._put(number, now().cleared(node))
        to, leads = self.wanted.get(number), nodes[now().leader or ""]
        if to is None and (leads.is_leaving or leads.is_draining):
            to = next((one for one in sorted(now().isr) if nodes[one].is_ready), None)
        if to == after(now().generation):
            self._put(number, now().resigned())
        elif to is not None and to in nodes and nodes[to].run:
            self._put(number, now().handed_over(to, nodes[to].run))


def made(nodes: dict[str, Member], shards: int, replicas: int) -> Cluster:
    """Return a cluster whose shards are where they shall be."""
    records = {number: ShardRecord.first(placed(number, nodes, replicas)) for number in range(shards)}
    found = Cluster(
        Situation(nodes=nodes, shards=records, replicas=replicas, min_isr=MIN_ISR[replicas], leader_pause_s=0)
    )
    found.settle()
    assert found.copies == 0
    return found


def members(count: int, *, zones: bool = False) -> dict[str, Member]:
    return {name: Member(name[0] if zones else "", run=1 + n) for n, name in enumerate(NAMES[:count])}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, Member], int, int]:
    replicas = draw(st.integers(1, 5))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=replicas, unique=True))
    has_zones = draw(st.booleans())
    nodes = {
        name: Member(name[0] if has_zones else "", draw(st.integers(1, 3)), run=1 + n)
        for n, name in enumerate(names)
    }
    return nodes, draw(st.integers(1, 12)), replicas


STATES = st.sampled_from(
    ["ready", "away", "gone", "leaving", "leaving and gone", "draining", "draining and away"]
)


@given(clusters(), st.lists(st.dictionaries(st.sampled_from(NAMES), STATES), max_size=4))
def test_shards_come_to_rest_where_they_shall_be_when_nodes_come_and_go(
    cluster: tuple[dict[str, Member], int, int], changes: list[dict[str, str]]
) -> None:
    nodes, shards, replicas = cluster
    found = made(nodes, shards, replicas)
    run = 100
    for change in [*changes, dict.fromkeys([*nodes, *(n for one in changes for n in one)], "ready")]:
        for name, state in change.items():
            run += 1
            is_here = not state.endswith(("away", "gone"))
            known = found.situation.nodes.get(name, Member(name[0]))
            member = replace(
                known,
                run=(known.run or run) if is_here else 0,
                away_s=1000.0 * state.endswith("gone") + 1.0 * (not is_here),
                is_leaving="leaving" in state,
                is_draining="draining" in state,
            )
            found.situation = replace(found.situation, nodes={**found.situation.nodes, name: member})
        found.settle()
    for number, record in found.situation.shards.items():
        assert (
            record.replicas
            == goal(found.situation, number)
            == placed(number, found.situation.nodes, replicas)
        )
        assert (record.adding, record.leader, len(record.isr)) == ((), record.replicas[0], replicas)


@given(clusters(), st.data())
def test_replicas_that_were_dropped_come_back(
    cluster: tuple[dict[str, Member], int, int], data: st.DataObject
) -> None:
    found = made(*cluster)
    before = found.situation.shards
    for number, record in before.items():
        node = data.draw(st.sampled_from(record.replicas))
        if (dropped := record.dropped(node, found.situation.min_isr)) is not None:
            found.situation = replace(found.situation, shards={**found.situation.shards, number: dropped})
    found.settle()
    for number, record in found.situation.shards.items():
        assert record.replicas == before[number].replicas
        assert (record.adding, record.left, record.leader) == ((), (), record.replicas[0])
        assert len(record.isr) == found.situation.replicas


@given(clusters(), st.data())
def test_shards_with_one_replica_get_all_of_them(
    cluster: tuple[dict[str, Member], int, int], data: st.DataObject
) -> None:
    nodes, shards, replicas = cluster
    found = made(nodes, shards, replicas)
    restored = data.draw(st.sampled_from(sorted(nodes)))
    records = {n: ShardRecord(1000, None, 0, frozenset([restored]), (restored,)) for n in range(shards)}
    found.situation = replace(found.situation, shards=records)
    found.settle()
    for number, record in found.situation.shards.items():
        assert record.replicas == goal(found.situation, number)
        assert (record.adding, record.leader, len(record.isr)) == ((), record.replicas[0], replicas)


@given(clusters())
def test_replicas_are_in_different_zones_while_there_are_any(
    cluster: tuple[dict[str, Member], int, int],
) -> None:
    nodes, shards, replicas = cluster
    for number in range(shards):
        chosen = placed(number, nodes, replicas)
        zones = {one.zone for one in nodes.values()}
        assert len({nodes[node].zone for node in chosen}) == min(replicas, len(zones))


@given(clusters(), st.data())
def test_only_what_has_to_move_is_copied_when_a_node_joins_or_leaves(
    cluster: tuple[dict[str, Member], int, int], data: st.DataObject
) -> None:
    nodes, shards, replicas = cluster
    nodes = {name: replace(member, zone="") for name, member in nodes.items()}
    name = data.draw(st.sampled_from([one for one in [*NAMES, "s"] if one not in nodes]))
    found = made(nodes, shards, replicas)
    before = dict(found.situation.shards)
    found.situation = replace(found.situation, nodes={**nodes, name: Member(run=50)})
    found.settle()
    joined = {number for number, one in found.situation.shards.items() if name in one.replicas}
    assert found.copies == len(joined)
    for number in before.keys() - joined:
        assert found.situation.shards[number].replicas == before[number].replicas
    found.copies = 0
    nodes_then = {**nodes, name: Member(run=50, is_leaving=True)}
    found.situation = replace(found.situation, nodes=nodes_then)
    found.settle()
    assert found.copies == len(joined)
    assert {n: one.replicas for n, one in found.situation.shards.items()} == {
        n: one.replicas for n, one in before.items()
    }


def test_shards_are_spread_by_weight() -> None:
    nodes = {name: Member("", weight, 1) for name, weight in (("a", 1), ("b", 1), ("c", 2), ("d", 4))}
    counts = Counter(placed(number, nodes, 1)[0] for number in range(4000))
    assert [round(counts[name] / 500) for name in "abcd"] == [1, 1, 2, 4]


def test_node_that_is_away_for_a_while_keeps_its_place_and_is_replaced_after_that() -> None:
    found = made(members(4), 8, 3)
    before = dict(found.situation.shards)
    nodes = dict(found.situation.nodes)
    lost = "p0"
    found.situation = replace(found.situation, nodes={**nodes, lost: replace(nodes[lost], run=0, away_s=899)})
    found.settle()
    assert {n: one.replicas for n, one in found.situation.shards.items()} == {
        n: one.replicas for n, one in before.items()
    }
    assert found.copies == 0
    found.situation = replace(found.situation, nodes={**nodes, lost: replace(nodes[lost], run=0, away_s=900)})
    found.settle()
    assert found.copies == sum(lost in one.replicas for one in before.values()) > 0
    assert not any(lost in one.nodes for one in found.situation.shards.values())


def test_node_that_is_away_gets_no_place_that_it_does_not_hold() -> None:
    found = made(members(4), 1, 3)
    holding = found.situation.shards[0].replicas
    for lost in (f"{number:016x}" for number in range(200)):
        nodes = {**found.situation.nodes, lost: Member("", 1, 0, 1.0)}
        situation = replace(found.situation, nodes=nodes)
        assert goal(situation, 0) == holding, "it would wait for a node that is lost"


def test_node_keeps_what_it_holds_when_there_are_too_few_others() -> None:
    found = made(members(3), 2, 3)
    nodes = {**found.situation.nodes, "p0": Member(run=1, is_leaving=True)}
    found.situation = replace(found.situation, nodes=nodes)
    found.settle()
    assert all("p0" in one.replicas and one.leader != "p0" for one in found.situation.shards.values())


def test_leaders_go_back_one_at_a_time_and_not_soon_after_the_last_hand_over() -> None:
    found = made(members(3), 6, 3)
    elsewhere = {
        number: one.handed_over(one.replicas[1], found.situation.nodes[one.replicas[1]].run)
        for number, one in found.situation.shards.items()
    }
    shards = {number: one for number, one in elsewhere.items() if one is not None}
    situation = replace(found.situation, shards=shards, leader_pause_s=60, handed_s=59)
    assert next_steps(situation) == []
    (step,) = next_steps(replace(situation, handed_s=60))
    assert isinstance(step, HandOver)
    assert step.node == shards[step.shard].replicas[0]
    assert next_steps(replace(situation, handed_s=60, wanted={step.shard: step.node})) == []
    done = shards[step.shard].handed_over(step.node, situation.nodes[step.node].run)
    assert done is not None
    after = replace(situation, shards={**shards, step.shard: done}, wanted={step.shard: step.node})
    assert next_steps(after) == [Settle(step.shard)]


def test_node_near_the_clients_is_the_preferred_leader_if_it_is_to_hold_the_shard() -> None:
    found = made(members(5), 6, 3)
    before = dict(found.situation.shards)
    spare = next(node for node in found.situation.nodes if node not in before[1].replicas)
    near = {0: before[0].replicas[2], 1: spare}
    found.situation = replace(found.situation, near=near)
    found.settle()
    assert found.copies == 0
    first, *rest = found.situation.shards[0].replicas
    assert first == found.situation.shards[0].leader == near[0]
    assert tuple(rest) == before[0].replicas[:2]
    assert all(found.situation.shards[number].replicas == before[number].replicas for number in range(1, 6))


def test_shard_stays_where_a_command_has_put_it_while_its_nodes_are_there() -> None:
    found = made(members(5), 1, 3)
    spare = next(node for node in found.situation.nodes if node not in found.situation.shards[0].replicas)
    pinned = (*found.situation.shards[0].replicas[:2], spare)
    found.situation = replace(found.situation, pinned={0: pinned})
    found.settle()
    assert found.situation.shards[0].replicas == pinned
    found.situation = replace(
        found.situation, nodes={**found.situation.nodes, spare: Member(run=9, is_leaving=True)}
    )
    found.settle()
    assert spare not in found.situation.shards[0].nodes
    assert found.situation.shards[0].replicas[:2] == pinned[:2]


def test_replicas_without_a_leader_are_left_alone() -> None:
    found = made(members(4), 1, 3)
    record = found.situation.shards[0].resigned()
    assert record is not None
    nodes = {**found.situation.nodes, record.replicas[0]: Member(is_leaving=True)}
    assert next_steps(replace(found.situation, shards={0: record}, nodes=nodes)) == []


def test_node_that_is_behind_copies_shards_and_leads_none_until_it_is_that_no_more() -> None:
    found = made(members(3), 12, 3)
    nodes = {**found.situation.nodes, "q0": Member(run=9, is_behind=True)}
    found.situation = replace(found.situation, nodes=nodes)
    found.settle()
    held = held_by(found, "q0")
    assert held and all(one.leader != "q0" for one in held)
    assert any(one.replicas[0] == "q0" for one in held)
    found.situation = replace(found.situation, nodes={**nodes, "q0": Member(run=9)})
    found.settle()
    assert all((one.leader == "q0") == (one.replicas[0] == "q0") for one in held_by(found, "q0"))


def held_by(found: Cluster, node: str) -> list[ShardRecord]:
    """Return the shards of which a node has a replica."""
    return [one for one in found.situation.shards.values() if node in one.replicas]
