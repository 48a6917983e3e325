from dataclasses import replace

from tests.cluster.replicas import LED, LOG, leader, log_of, of_type, replica, sent
from timestone_cluster.actions import Alarm, Propose, Refresh, Serve, Show, StepDown
from timestone_cluster.follower import Follower
from timestone_cluster.frames import Committed, Fenced, Follow, Held, Records, Started
from timestone_cluster.leader import Leader
from timestone_cluster.replica import Replica
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard_record import ShardRecord

SECOND = ShardRecord(2, "b", 2, frozenset({"b", "c"}), LED.replicas)


def test_replica_follows_the_leader_of_the_record_when_it_is_another() -> None:
    b = Replica("b", 2, 2, {LOG: ReplicaLog()})
    b.record_seen(LED, 5)
    assert sent(b.take_actions(), "a") == [Follow(1, LOG, 0, 0, 0)]


def test_replica_leads_when_the_record_names_it_and_its_run() -> None:
    a = Replica("a", 1, 2, {LOG: ReplicaLog()})
    a.record_seen(LED, 5)
    assert isinstance(a.role, Leader)
    for member in "bc":
        a.received(member, Follow(1, LOG, 0, 0, 0))
    assert of_type(a.take_actions(), Serve) == [Serve(1)]


def test_replica_does_not_lead_on_when_it_was_restarted() -> None:
    a = Replica("a", 9, 2, {LOG: ReplicaLog()})
    a.record_seen(LED, 5)
    assert a.role is None
    a.stand()
    [proposal] = of_type(a.take_actions(), Propose)
    assert (proposal.record, proposal.absent) == (replace(LED, generation=2, run=9), None)


def test_replica_ignores_a_record_when_it_has_seen_a_newer_one() -> None:
    b = replica("b")
    b.record_seen(SECOND, 6)
    b.record_seen(LED, 5)
    assert b.generation == 2


def test_replica_alarms_when_etcd_is_behind_its_own_log() -> None:
    b = replica("b", log_of((7, 3)), None)
    b.record_seen(LED, 5)
    assert "restored from the past" in of_type(b.take_actions(), Alarm)[0].reason
    assert b.role is None


def test_leader_steps_down_when_another_is_elected() -> None:
    a = leader()
    a.record_seen(SECOND, 6)
    assert of_type(a.take_actions(), StepDown) == [StepDown(1)]
    assert isinstance(a.role, Follower)


def test_leader_steps_down_when_a_member_knows_a_newer_generation() -> None:
    a = leader()
    a.received("b", Fenced(2))
    assert a.take_actions() == [StepDown(1), Refresh()]
    a.record_seen(replace(LED, isr=frozenset({"a", "b"})), 6)
    assert a.role is None, "a generation that has ended is not led again"


def test_old_leader_is_fenced_when_it_sends_records() -> None:
    c = replica("c")
    c.record_seen(SECOND, 6)
    c.take_actions()
    c.received("a", Records(1, LOG, 0, 1, 1, 0, (), b""))
    assert sent(c.take_actions(), "a") == [Fenced(2)]


def test_held_of_an_old_generation_is_not_counted() -> None:
    a = leader(log_of((1, 2)), followers="")
    for member in "bc":
        a.received(member, Follow(2, LOG, 2, 1, 0))
        a.received(member, Held(1, LOG, 2))
    assert a.logs[LOG].committed == 0


def test_candidate_proposes_itself_on_condition_that_the_old_leader_is_gone() -> None:
    b = replica("b")
    b.stand()
    [proposal] = of_type(b.take_actions(), Propose)
    assert (proposal.present, proposal.absent, proposal.revision) == (("b", 2), ("a", 1), 5)
    assert proposal.record == ShardRecord(2, "b", 2, frozenset({"b", "c"}), LED.replicas)
    assert b.role is None
    b.refused(proposal)
    assert sent(b.take_actions(), "a") == [Follow(1, LOG, 0, 0, 0)]


def test_replica_does_not_stand_when_it_is_out_of_sync_or_damaged() -> None:
    outside = replica("c", record=replace(LED, isr=frozenset({"a", "b"})))
    damaged = replica("b")
    damaged.damaged(LOG)
    for one in (outside, damaged):
        one.take_actions()
        one.stand()
        assert one.take_actions() == []


def test_leader_resigns_when_a_record_is_damaged_and_repeats_it_until_etcd_agrees() -> None:
    a = leader()
    a.damaged(LOG)
    actions = a.take_actions()
    assert of_type(actions, Propose)[0].record == replace(LED, leader=None, run=0)
    assert of_type(actions, StepDown) == [StepDown(1)]
    a.resign()
    assert len(of_type(a.take_actions(), Propose)) == 1


def test_leader_leads_on_when_it_registers_again() -> None:
    a = leader()
    a.registered(40)
    [proposal] = of_type(a.take_actions(), Propose)
    assert proposal.record == replace(LED, run=40)
    a.record_seen(proposal.record, 6)
    assert a.is_serving


def test_replica_follows_a_log_that_is_added() -> None:
    b = replica("b")
    b.log_added("commands-0")
    assert sent(b.take_actions(), "a") == [Follow(1, "commands-0", 0, 0, 0)]


def test_leader_waits_for_no_follower_in_a_log_that_is_deleted() -> None:
    a, other = leader(), "flow-0"
    a.log_added(other)
    for member in "bc":
        a.received(member, Follow(1, other, 0, 0, 0))
        a.received(member, Held(1, other, 0))
    a.appended(other, 3, 0)
    a.appended(LOG, 2, 0)
    a.take_actions()
    a.log_removed(other)
    a.log_removed(other)  # nothing more
    for name in (other, LOG):
        a.durable(LOG, 2)
        for member in "bc":
            a.received(member, Held(1, name, 2))  # of the deleted one, too: it was on its way
            a.received(member, Follow(1, other, 0, 0, 0))
    assert of_type(a.take_actions(), Show) == [Show(LOG, 2)]
    a.beat()
    assert {frame.log for frame in sent(a.take_actions(), "b") if isinstance(frame, Committed)} == {LOG}


def test_leader_serves_when_a_log_that_has_kept_it_from_that_is_deleted() -> None:
    other = "flow-0"
    a = Replica("a", 1, 2, {LOG: log_of(), other: log_of((1, 5))})
    record = ShardRecord(2, "a", 1, LED.isr, LED.replicas)
    a.record_seen(record, 5)
    for member in "bc":
        a.received(member, Follow(2, LOG, 0, 0, 0))
    assert not a.is_serving
    a.log_removed(other)
    assert a.is_serving


def test_follower_promises_nothing_of_a_log_that_is_deleted_or_of_a_later_one_of_its_name() -> None:
    b = replica("b")
    [question] = sent_questions(b)
    b.received("a", Started(1, question))
    b.log_removed(LOG)
    b.log_added(f"{LOG}@1")
    b.take_actions()
    b.received("a", Records(1, LOG, 0, 2, 1, 0, (), b""))
    b.received("a", Committed(1, LOG, 2, 0))
    b.received("a", Started(1, question))
    b.beat()
    assert sent(b.take_actions(), "a") == [Follow(1, f"{LOG}@1", 0, 0, 0)]


def sent_questions(b: Replica) -> list[Follow]:
    """Return what a follower asks."""
    b.linked("a")
    return [frame for frame in sent(b.take_actions(), "a") if isinstance(frame, Follow)]


def test_replica_asks_again_when_a_new_link_is_up() -> None:
    b = replica("b")
    b.linked("c")
    assert b.take_actions() == []
    b.linked("a")
    assert sent(b.take_actions(), "a") == [Follow(1, LOG, 0, 0, 0)]
