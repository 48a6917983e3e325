from dataclasses import replace

import pytest

from tests.cluster.replicas import LED, LOG, leader, of_type, replica
from timestone_cluster.actions import Propose
from timestone_cluster.deadlines import (
    AGAIN_S,
    ASLEEP_S,
    AWAY_S,
    BEHIND_S,
    LATE_S,
    PLACE_S,
    SILENT_S,
    STUCK_S,
    TICK_S,
    WAKING_S,
    Deadlines,
)
from timestone_cluster.follower import Follower
from timestone_cluster.frames import Follow, Held, Started
from timestone_cluster.leader import Leader
from timestone_cluster.replica import Replica
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard_record import ShardRecord

ALL = {"a": 1, "b": 2, "c": 3}
WITHOUT_A = {"b": 2, "c": 3}


class Clocked:
    """A replica and its deadlines, ticked as a driver does."""

    def __init__(self, one: Replica) -> None:
        self.replica, self.now_s = one, 100.0
        self.deadlines = Deadlines(one, self.now_s)

    def pass_time(
        self, seconds: float, runs: dict[str, int], *, heard: str = "", unable: str = ""
    ) -> list[Propose]:
        """Tick for a while, hearing these members; return what was proposed."""
        end_s, proposed = self.now_s + seconds, list[Propose]()
        while self.now_s < end_s:
            self.now_s += TICK_S
            for member in heard:
                self.deadlines.heard(member, self.now_s)
            self.deadlines.tick(self.now_s, runs, unable)
            proposed += of_type(self.replica.take_actions(), Propose)
        return proposed


@pytest.fixture
def follower() -> Clocked:
    return Clocked(replica("b"))


@pytest.fixture
def leading() -> Clocked:
    return Clocked(leader())


def test_follower_stands_when_the_leader_is_gone_and_was_not_heard(follower: Clocked) -> None:
    follower.pass_time(1, ALL, heard="a")
    assert follower.pass_time(SILENT_S / 2, WITHOUT_A) == []
    [proposal, *_] = follower.pass_time(SILENT_S + PLACE_S, WITHOUT_A)
    assert proposal.record.leader == "b"
    assert proposal.why.startswith(
        "stands for election: a, which led, is not registered in etcd, and was not heard for 1."
    )


def test_follower_does_not_stand_while_it_hears_its_leader(follower: Clocked) -> None:
    assert follower.pass_time(5, WITHOUT_A, heard="a") == []


def test_follower_does_not_stand_while_the_leader_is_registered(follower: Clocked) -> None:
    assert follower.pass_time(5, ALL) == []


def test_follower_stands_again_when_there_is_no_answer(follower: Clocked) -> None:
    assert len(follower.pass_time(2 * SILENT_S + 2 * AGAIN_S, WITHOUT_A)) > 1


def test_preferred_replica_stands_first() -> None:
    stood = {}
    for name in "bc":
        clocked = Clocked(replica(name, record=replace(LED, leader=None, run=0, replicas=("c", "a", "b"))))
        while not clocked.pass_time(TICK_S, ALL):
            assert clocked.now_s < 200
        stood[name] = clocked.now_s
    assert stood["c"] <= stood["b"]


def test_leader_dismisses_a_member_when_it_is_late(leading: Clocked) -> None:
    assert leading.pass_time(LATE_S, ALL, heard="bc") == []
    [proposal, *_] = leading.pass_time(LATE_S + TICK_S, ALL, heard="b")
    assert proposal.record.isr == {"a", "b"}
    assert proposal.why == "takes c out of the in-sync set: it has lacked records of the leader for 2 s"


def test_leader_dismisses_a_member_when_it_is_not_registered(leading: Clocked) -> None:
    [proposal, *_] = leading.pass_time(TICK_S, {"a": 1, "c": 3}, heard="bc")
    assert proposal.record.isr == {"a", "c"}
    assert proposal.why == "takes b out of the in-sync set: it is not registered in etcd"


def test_leader_dismisses_no_member_when_its_shard_has_no_log_or_one_was_deleted(leading: Clocked) -> None:
    leading.replica.appended(LOG, 3, 0)
    assert not leading.pass_time(1, ALL, heard="bc")
    leading.replica.log_removed(LOG)
    assert not leading.pass_time(2 * LATE_S, ALL)
    assert leading.pass_time(1, {"a": 1, "c": 3})  # is not registered


def test_leader_has_its_new_run_noted_again_when_another_change_came_first(leading: Clocked) -> None:
    leading.replica.registered(7)
    assert [one.record.run for one in of_type(leading.replica.take_actions(), Propose)] == [7]
    leading.replica.record_seen(replace(LED, adding=("d",)), 6)  # in its place
    [proposal, *_] = leading.pass_time(TICK_S, ALL, heard="bc")
    assert (proposal.revision, proposal.record) == (6, replace(LED, adding=("d",), run=7))
    leading.replica.record_seen(proposal.record, 7)
    assert leading.pass_time(AGAIN_S + TICK_S, ALL, heard="bc") == []


def test_leader_admits_a_member_when_it_has_caught_up(leading: Clocked) -> None:
    leading.replica.record_seen(replace(LED, isr=frozenset({"a", "b"})), 6)
    [proposal, *_] = leading.pass_time(TICK_S, ALL, heard="bc")
    assert proposal.record.isr == {"a", "b", "c"}
    assert proposal.present == ("c", 3)
    assert proposal.why == "takes c into the in-sync set: it has caught up"


def test_leader_does_not_admit_a_member_when_it_is_not_heard(leading: Clocked) -> None:
    leading.replica.record_seen(replace(LED, isr=frozenset({"a", "b"})), 6)
    assert leading.pass_time(LATE_S, ALL, heard="b") == []


def test_leader_is_waking_for_a_moment_when_it_was_suspended_for_so_long_that_another_may_lead(
    leading: Clocked, follower: Clocked
) -> None:
    for one in (leading, follower):
        one.pass_time(TICK_S, ALL, heard="abc")
    assert not leading.deadlines.is_waking(leading.now_s + ASLEEP_S - TICK_S)
    leading.now_s += ASLEEP_S
    assert leading.deadlines.is_waking(leading.now_s), "before the first tick"
    leading.pass_time(WAKING_S / 2, ALL, heard="bc")
    assert leading.deadlines.is_waking(leading.now_s)
    leading.pass_time(WAKING_S, ALL, heard="bc")
    assert not leading.deadlines.is_waking(leading.now_s)
    assert not follower.deadlines.is_waking(follower.now_s + ASLEEP_S)


def test_leader_resigns_when_it_commits_nothing_though_others_are_there(leading: Clocked) -> None:
    leading.pass_time(TICK_S, ALL, heard="bc")
    leading.replica.appended(LOG, 1, 0)
    proposed = leading.pass_time(STUCK_S + 2 * TICK_S, ALL, heard="bc")
    assert proposed[-1].record.leader is None
    reasons = [one.why for one in proposed if one.record.leader is None]
    assert reasons[0] == "resigns: nothing was committed for 4 s, though enough nodes are registered"
    assert not isinstance(leading.replica.role, Leader)
    leading.replica.record_seen(proposed[-1].record, 7)
    assert leading.pass_time(AWAY_S - 1, ALL) == []
    assert leading.pass_time(2 + SILENT_S, ALL) != []


def test_leader_does_not_resign_when_it_commits(leading: Clocked) -> None:
    for end in range(1, 6):
        leading.replica.appended(LOG, end, 0)
        leading.replica.durable(LOG, end)
        for member in "bc":
            leading.replica.received(member, Held(1, LOG, end))
        assert leading.pass_time(STUCK_S / 2, ALL, heard="bc") == []


def test_leader_does_not_resign_when_too_few_are_there_to_replace_it(leading: Clocked) -> None:
    leading.replica.appended(LOG, 1, 0)
    proposed = leading.pass_time(3 * STUCK_S, {"a": 1, "b": 2}, heard="b")
    assert all(proposal.record.leader == "a" for proposal in proposed)


def test_leader_that_has_resigned_stands_again_at_once_when_no_other_member_is_left(leading: Clocked) -> None:
    leading.replica.record_seen(replace(LED, isr=frozenset({"a", "b"})), 6)
    leading.replica.appended(LOG, 1, 0)
    resigned = leading.pass_time(STUCK_S + 2 * TICK_S, ALL, heard="b")[-1].record
    assert resigned.leader is None
    leading.replica.record_seen(resigned, 7)
    assert leading.pass_time(SILENT_S, ALL) == []
    assert leading.pass_time(SILENT_S, {"a": 1, "c": 3})[0].record.leader == "a"


def test_leader_neither_dismisses_nor_resigns_when_its_process_was_suspended(leading: Clocked) -> None:
    leading.pass_time(LATE_S, ALL, heard="bc")
    leading.replica.appended(LOG, 1, 0)
    leading.now_s += 3 * STUCK_S
    assert leading.pass_time(TICK_S, ALL) == []
    assert leading.pass_time(2 * STUCK_S, ALL, heard="bc")[-1].record.leader is None


def test_leader_that_is_alone_in_sync_commits_nothing_and_does_not_resign_until_another_has_caught_up(
    leading: Clocked,
) -> None:
    """As after an election by command."""
    leading.replica.record_seen(replace(LED, isr=frozenset({"a"})), 6)
    leading.replica.appended(LOG, 1, 0)
    leading.replica.durable(LOG, 1)
    assert leading.pass_time(2 * STUCK_S, ALL) == []
    assert (leading.replica.logs[LOG].committed, leading.replica.logs[LOG].end) == (0, 1)
    leading.replica.received("b", Held(1, LOG, 1))
    [proposal, *_] = leading.pass_time(2 * TICK_S, ALL, heard="b")
    assert proposal.record.isr == {"a", "b"}
    leading.replica.record_seen(proposal.record, 7)
    assert leading.replica.logs[LOG].committed == 1


def test_observer_is_forgotten_when_it_is_not_heard(leading: Clocked) -> None:
    leading.replica.received("d", Follow(1, LOG, 0, 0, 0))
    role = leading.replica.role
    assert isinstance(role, Leader)
    leading.pass_time(2 * LATE_S, ALL, heard="bcd")
    assert role.observers == ["d"]
    leading.pass_time(LATE_S + TICK_S, ALL, heard="bc")
    assert role.observers == []


def test_observer_asks_again_when_its_leader_is_silent() -> None:
    observer = Clocked(replica("b", record=ShardRecord(1, "a", 1, frozenset("ac"), ("a", "c"))))
    observer.replica.received("a", Started(1, Follow(1, LOG, 0, 0, 0)))
    role = observer.replica.role
    assert isinstance(role, Follower)
    assert observer.pass_time(2 * LATE_S, ALL, heard="a") == []
    assert role.started == {LOG}
    assert observer.pass_time(LATE_S + AGAIN_S + TICK_S, WITHOUT_A) == []
    assert role.started == set()


def test_member_that_is_behind_leaves_an_election_to_others_for_some_seconds_only(follower: Clocked) -> None:
    follower.pass_time(1, ALL, unable="b", heard="a")
    assert follower.pass_time(BEHIND_S, WITHOUT_A, unable="b") == []
    assert follower.pass_time(SILENT_S + 2 * AGAIN_S, WITHOUT_A, unable="b") != []


def test_member_that_is_behind_stands_when_no_other_could_serve(follower: Clocked) -> None:
    assert follower.pass_time(2 * SILENT_S, WITHOUT_A, unable="bc") != []


def test_member_of_another_boot_is_dismissed_at_once_when_its_node_is_registered_again() -> None:
    record = ShardRecord(1, "a@1", 1, frozenset({"a@1", "b@1", "c@1"}), ("a", "b", "c"))
    a = Replica("a@1", 1, 2, {LOG: ReplicaLog()})
    a.record_seen(record, 5)
    a.take_actions()
    Deadlines(a, 0.0).tick(0.1, {"a@1": 1, "b@2": 9, "c@1": 3})
    [proposal] = of_type(a.take_actions(), Propose)
    assert proposal.record.isr == {"a@1", "c@1"}
    assert proposal.why == "takes b out of the in-sync set: its machine was booted again"
