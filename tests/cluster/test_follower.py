from dataclasses import replace

from tests.cluster.replicas import LED, LOG, log_of, of_type, replica, sent
from timestone_cluster.actions import Alarm, Append, Clear, Cut, Send, Show
from timestone_cluster.frames import Committed, Diverged, Follow, Held, Records, Reset, Started
from timestone_cluster.replica import Replica
from timestone_cluster.shard_record import ShardRecord, Unclean

THIRD = ShardRecord(3, "a", 1, LED.isr, LED.replicas)


def records(first: int, end: int, generation: int = 1) -> Records:
    return Records(generation, LOG, first, end, generation, 0, (), b"")


def started() -> Replica:
    b = replica("b")
    b.received("a", Started(1, Follow(1, LOG, 0, 0, 0)))
    b.take_actions()
    return b


def test_follower_holds_what_is_durable_and_not_what_is_written() -> None:
    b = started()
    b.received("a", records(0, 3))
    assert b.take_actions() == [Append(records(0, 3))]
    b.durable(LOG, 2)
    assert sent(b.take_actions(), "a") == [Held(1, LOG, 2)]


def test_follower_asks_again_when_records_are_missing() -> None:
    b = started()
    b.received("a", records(1, 2))
    assert sent(b.take_actions(), "a") == [Follow(1, LOG, 0, 0, 0)]
    assert b.logs[LOG].end == 0


def test_follower_leaves_records_alone_when_it_has_them() -> None:
    b = started()
    b.received("a", records(0, 3))
    b.take_actions()
    b.received("a", records(0, 2))
    assert b.take_actions() == []


def test_follower_cuts_to_the_leaders_end_of_the_generation_when_they_differ() -> None:
    b = replica("b", log_of((1, 5), (2, 9), committed=4), THIRD)
    question = Follow(3, LOG, 9, 2, 0)
    b.received("a", Diverged(3, question, 2, 7, 0))
    actions = b.take_actions()
    assert of_type(actions, Cut) == [Cut(LOG, 7, 0)]
    assert sent(actions, "a") == [Follow(3, LOG, 7, 2, 0)]


def test_follower_cuts_to_its_own_end_of_the_generation_when_that_is_shorter() -> None:
    b = replica("b", log_of((1, 5), (2, 9), committed=4), THIRD)
    b.received("a", Diverged(3, Follow(3, LOG, 9, 2, 0), 1, 8, 0))
    assert of_type(b.take_actions(), Cut) == [Cut(LOG, 5, 0)]


def test_follower_alarms_and_leaves_a_leader_alone_that_lacks_what_was_shown() -> None:
    b = replica("b", log_of((1, 5), (2, 9), committed=8), THIRD)
    question = Follow(3, LOG, 9, 2, 0)
    b.received("a", Diverged(3, question, 2, 7, 0))
    [alarm] = of_type(b.take_actions(), Alarm)
    assert "lacks records 7 to 7, which were shown" in alarm.reason
    # After a restore of etcd the leader's generation may be that of these records, so that others look the same.
    b.received("a", Started(3, question))
    b.linked("a")
    b.beat()
    b.durable(LOG, 9)
    assert (b.take_actions(), b.logs[LOG].end) == ([], 9)


def test_follower_that_has_more_than_its_leader_may_lead_and_follows_the_next_one() -> None:
    b = replica("b", log_of((1, 5), (2, 9), committed=8), THIRD)
    b.received("a", Reset(3, Follow(3, LOG, 9, 2, 0), 0))
    assert b.may_stand
    b.record_seen(replace(THIRD, generation=4, leader="c"), 6)
    assert sent(b.take_actions(), "c") == [Follow(4, LOG, 9, 2, 0)]


def test_follower_clears_its_log_when_the_leader_cannot_compare_it() -> None:
    b = replica("b", log_of((1, 5), committed=5), THIRD)
    b.received("a", Reset(3, Follow(3, LOG, 5, 1, 0), 40))
    actions = b.take_actions()
    assert of_type(actions, Clear) == [Clear(LOG, 40)]
    assert sent(actions, "a") == [Follow(3, LOG, 40, 0, 0)]


def test_follower_ignores_an_answer_when_its_log_has_changed_since_the_question() -> None:
    b = replica("b", log_of((1, 5)), THIRD)
    b.received("a", Reset(3, Follow(3, LOG, 4, 1, 0), 0))
    b.received("a", Diverged(3, Follow(3, LOG, 4, 1, 0), 1, 2, 0))
    assert b.take_actions() == []


def test_follower_shows_what_is_committed_only_after_its_log_was_compared() -> None:
    b = replica("b", log_of((1, 5)), THIRD)
    b.received("a", Committed(3, LOG, 5, 0))
    assert b.take_actions() == []
    b.received("a", Started(3, Follow(3, LOG, 5, 1, 0)))
    b.received("a", Committed(3, LOG, 7, 0))
    assert of_type(b.take_actions(), Show) == [Show(LOG, 5)]


def test_follower_holds_nothing_while_a_record_is_damaged() -> None:
    b = started()
    b.received("a", records(0, 3))
    b.damaged(LOG)
    b.take_actions()
    b.durable(LOG, 3)
    assert b.take_actions() == []
    b.repaired(LOG)
    assert sent(b.take_actions(), "a") == [Held(1, LOG, 3)]


def test_observer_shows_what_is_committed_and_promises_nothing_until_it_has_a_place() -> None:
    d = replica("b", record=ShardRecord(1, "a", 1, frozenset("ac"), ("a", "c")))
    d.received("a", Started(1, Follow(1, LOG, 0, 0, 0)))
    d.received("a", records(0, 3))
    d.durable(LOG, 3)
    d.received("a", Committed(1, LOG, 2, 0))
    assert of_type(d.take_actions(), Show) == [Show(LOG, 2)]
    d.beat()
    assert d.take_actions() == [Send("a", Held(1, LOG, 0))]
    assert not d.may_stand
    d.record_seen(ShardRecord(1, "a", 1, frozenset("ac"), ("a", "c"), ("b",)), 6)
    d.beat()
    assert d.take_actions() == [Send("a", Held(1, LOG, 3))]


def test_follower_cuts_what_was_shown_when_a_command_has_given_it_up() -> None:
    def cut_with(*unclean: Unclean) -> list[Cut]:
        b = replica("b", log_of((1, 5), (2, 9), committed=8), replace(THIRD, unclean=unclean))
        b.received("a", Diverged(3, Follow(3, LOG, 9, 2, 0), 2, 7, 0))
        found = of_type(b.take_actions(), Cut)
        assert b.logs[LOG].committed == (7 if found else 8)
        return found

    log = LOG.rpartition("-")[0]
    assert cut_with(Unclean(3, log, 7, 100)) == [Cut(LOG, 7, 0, True)]
    for other in (
        Unclean(2, log, 7, 100),  # before the records that are here
        Unclean(3, log, 8, 100),  # less was given up
        Unclean(3, log, 7, 7),  # other records get these offsets
        Unclean(3, "other", 7, 100),
    ):
        assert cut_with(other) == []
