import pytest

from tests.cluster.replicas import LOG, leader, log_of, of_type, replica, sent
from timestone_cluster.actions import Propose, Serve, Ship, Show
from timestone_cluster.frames import Committed, Diverged, Follow, Held, Reset, Started
from timestone_cluster.leader import Leader
from timestone_cluster.replica import Replica
from timestone_cluster.shard_record import ShardRecord


def test_leader_ships_records_when_they_are_written_and_commits_them_when_all_have_them() -> None:
    a = leader()
    a.appended(LOG, 3, 1)
    assert of_type(a.take_actions(), Ship) == [Ship("b", LOG, 0, 3, 0), Ship("c", LOG, 0, 3, 0)]
    a.received("b", Held(1, LOG, 3))
    a.received("c", Held(1, LOG, 2))
    assert of_type(a.take_actions(), Show) == []
    a.durable(LOG, 3)
    actions = a.take_actions()
    assert of_type(actions, Show) == [Show(LOG, 2)]
    assert sent(actions, "b") == [Committed(1, LOG, 2, 0)]


def test_leader_ignores_what_a_follower_cannot_have() -> None:
    a = leader()
    a.appended(LOG, 3, 1)
    a.durable(LOG, 3)
    for member in "bc":
        a.received(member, Held(1, LOG, 4))
    assert a.logs[LOG].committed == 0


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ((0, 0), Started),
        ((5, 1), Started),
        ((7, 3), Started),
        ((6, 1), Diverged),
        ((9, 4), Started),
        ((9, 3), Diverged),
        ((12, 4), Diverged),
        ((20, 5), Diverged),
        ((12, 0), Reset),
    ],
)
def test_leader_answers_a_follower_by_generation_when_asked(asked: tuple[int, int], answer: type) -> None:
    a = leader(log_of((1, 5), (3, 7), (4, 10)), followers="")
    a.received("b", Follow(5, LOG, *asked, 0))
    assert isinstance(sent(a.take_actions(), "b")[0], answer)


def test_leader_names_the_largest_generation_not_above_the_followers_when_they_differ() -> None:
    a = leader(log_of((1, 5), (3, 7), (4, 10)), followers="")
    question = Follow(5, LOG, 6, 2, 0)
    a.received("b", question)
    assert sent(a.take_actions(), "b") == [Diverged(5, question, 1, 5, 0)]


def test_leader_resets_a_follower_when_retention_has_removed_what_follows() -> None:
    log = log_of((1, 5), (3, 7), committed=7)
    log.start = 6
    a = leader(log, followers="")
    question = Follow(4, LOG, 5, 1, 0)
    a.received("b", question)
    assert sent(a.take_actions(), "b") == [Reset(4, question, 6)]


def test_leader_serves_when_all_it_began_with_is_committed() -> None:
    a = leader(log_of((1, 5)), followers="b")
    assert not a.is_serving
    a.received("c", Follow(2, LOG, 5, 1, 0))
    a.received("c", Held(2, LOG, 5))
    assert of_type(a.take_actions(), Serve) == [Serve(2)]
    with pytest.raises(ValueError, match="does not serve"):
        replica("b").appended(LOG, 1, 0)


def test_leader_serves_only_once_all_that_it_counts_follow_though_all_it_has_is_committed() -> None:
    a = leader(log_of((1, 5), committed=5), followers="b")
    assert not a.is_serving
    a.received("c", Follow(2, LOG, 9, 2, 0))  # has more
    a.received("c", Held(2, LOG, 9))
    assert not a.is_serving
    a.dismiss("c")
    [proposal] = of_type(a.take_actions(), Propose)
    a.record_seen(proposal.record, 6)
    assert of_type(a.take_actions(), Serve) == [Serve(2)]


def test_leader_counts_a_member_until_etcd_has_agreed_to_dismiss_it() -> None:
    a = leader()
    a.appended(LOG, 1, 0)
    a.durable(LOG, 1)
    a.received("b", Held(1, LOG, 1))
    a.dismiss("c")
    assert a.logs[LOG].committed == 0
    [proposal] = of_type(a.take_actions(), Propose)
    a.record_seen(proposal.record, 6)
    assert a.logs[LOG].committed == 1


def test_leader_counts_a_member_that_it_proposes_to_admit_before_etcd_has_agreed() -> None:
    a = leader()
    a.record_seen(ShardRecord(1, "a", 1, frozenset({"a", "b"}), ("a", "b", "c")), 6)
    a.admit("c", 3)
    a.appended(LOG, 1, 0)
    a.durable(LOG, 1)
    a.received("b", Held(1, LOG, 1))
    assert a.logs[LOG].committed == 0
    [proposal] = of_type(a.take_actions(), Propose)
    assert proposal.present == ("c", 3)
    assert proposal.record.isr == {"a", "b", "c"}
    a.refused(proposal)
    assert a.logs[LOG].committed == 1


def test_leader_admits_a_follower_only_when_it_has_everything_committed() -> None:
    a = leader()
    a.record_seen(ShardRecord(1, "a", 1, frozenset({"a", "b"}), ("a", "b", "c")), 6)
    a.appended(LOG, 1, 0)
    a.durable(LOG, 1)
    a.received("b", Held(1, LOG, 1))
    a.take_actions()
    a.admit("c", 3)
    assert of_type(a.take_actions(), Propose) == []
    a.received("c", Held(1, LOG, 1))
    a.admit("c", 3)
    assert len(of_type(a.take_actions(), Propose)) == 1


def test_leader_hands_over_only_when_nothing_waits() -> None:
    a = leader()
    a.appended(LOG, 1, 0)
    a.hand_over("b", 2)
    assert of_type(a.take_actions(), Propose) == []
    a.durable(LOG, 1)
    for member in "bc":
        a.received(member, Held(1, LOG, 1))
    a.take_actions()
    a.hand_over("b", 2)
    [proposal] = of_type(a.take_actions(), Propose)
    a.received("b", Held(1, LOG, 1))
    a.durable(LOG, 1)
    assert not a.is_serving
    a.refused(proposal)
    assert of_type(a.take_actions(), Serve) == [Serve(1)]
    assert (proposal.record.leader, proposal.record.generation) == ("b", 2)


def test_tombstones_are_kept_until_all_replicas_have_removed_what_they_delete() -> None:
    a = leader()
    record = ShardRecord(1, "a", 1, frozenset({"a", "b"}), ("a", "b", "c"))
    a.record_seen(record, 6)
    a.appended(LOG, 4, 0)
    a.durable(LOG, 4)
    a.received("b", Held(1, LOG, 4))
    a.received("c", Held(1, LOG, 4))
    a.compacted(LOG, 3)
    a.received("b", Held(1, LOG, 4, 2))
    assert (a.logs[LOG].committed, a.logs[LOG].stable) == (4, 0)
    a.received("c", Held(1, LOG, 4, 1))
    assert a.logs[LOG].stable == 1
    adding = record.adds("d")
    assert adding is not None
    a.record_seen(adding, 7)
    a.received("c", Held(1, LOG, 4, 4))
    assert a.logs[LOG].stable == 1  # the new replica may have copied a record, and not yet its tombstone
    a.received("d", Follow(1, LOG, 0, 0, 0))
    a.received("d", Held(1, LOG, 4, 4))
    assert a.logs[LOG].stable == 2


def test_member_of_an_earlier_boot_is_forgotten_when_the_node_follows_again() -> None:
    a = leader()
    a.received("b@2", Follow(1, LOG, 0, 0, 0))
    a.appended(LOG, 1, 0)
    assert [ship.member for ship in of_type(a.take_actions(), Ship)] == ["c", "b@2"]


def test_observer_is_sent_records_and_counts_only_once_it_has_a_place_and_says_so() -> None:
    a = leader()
    record = a.record
    assert record is not None
    a.received("d", Follow(1, LOG, 0, 0, 0))
    assert sent(a.take_actions(), "d") == [Started(1, Follow(1, LOG, 0, 0, 0)), Committed(1, LOG, 0, 0)]
    a.appended(LOG, 3, 1)
    assert {one.member for one in of_type(a.take_actions(), Ship)} == {"b", "c", "d"}
    a.durable(LOG, 3)
    for member in "bd":
        a.received(member, Held(1, LOG, 3, 3))
    assert (a.logs[LOG].committed, role(a).held_by("d", LOG)) == (0, 0)
    a.admit("d", 4)
    assert of_type(a.take_actions(), Propose) == []
    adding = record.adds("d")
    assert adding is not None
    a.record_seen(adding, 6)
    assert role(a).held_by("d", LOG) == 0
    a.received("d", Held(1, LOG, 3))
    a.received("c", Held(1, LOG, 3))
    a.admit("d", 4)
    admitted = of_type(a.take_actions(), Propose)[-1].record
    moved = admitted.moved("d", "c", 2)
    assert moved is not None
    a.record_seen(moved, 7)
    a.appended(LOG, 4, 1)
    assert {one.member for one in of_type(a.take_actions(), Ship)} == {"b", "c", "d"}  # c observes now
    a.durable(LOG, 4)
    for member in "bd":
        a.received(member, Held(1, LOG, 4))
    assert (a.logs[LOG].committed, role(a).held_by("c", LOG)) == (4, 0)


def test_observer_is_sent_nothing_more_when_it_is_forgotten() -> None:
    a = leader()
    a.received("d", Follow(1, LOG, 0, 0, 0))
    assert role(a).observers == ["d"]
    role(a).forget("d")
    a.take_actions()
    a.appended(LOG, 1, 0)
    assert {one.member for one in of_type(a.take_actions(), Ship)} == {"b", "c"}


def role(one: Replica) -> Leader:
    assert isinstance(one.role, Leader)
    return one.role
