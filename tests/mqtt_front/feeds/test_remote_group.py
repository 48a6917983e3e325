"""Members of a group that another home has: what they get, give back, and say after a cut."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.group_store import home_key
from mqtt_front.feeds.remote_group import RemoteGroup
from mqtt_front.feeds.shared_group import once_key
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.sessions.session import Session
from tests.support.seeds import run_seed, told_on_failure
from tests.support.two_homes import FILTER, TwoHomes
from timestone.fronts import Correspondent
from timestone.store import Store


@pytest.fixture
def homes(store: Store) -> Iterator[TwoHomes]:
    with ThreadPoolExecutor(1) as executor:
        yield TwoHomes(store.log("mqtt", 1), executor).start()


def test_each_record_goes_to_one_member_in_turn_wherever_its_home_is(homes: TwoHomes) -> None:
    members = [homes.join("a", 0), homes.join("b", 0), homes.join("c", 1)]
    for _ in range(30):
        homes.publish(1)
        homes.publish(1, "other")
    taken = [homes.taken(one) for one in members]
    assert sorted(number for numbers in taken for number in numbers) == list(range(0, 60, 2))
    assert [len(numbers) for numbers in taken] == [10, 10, 10]
    (group,) = homes.groups[1]
    assert (group.committed, group.open_offsets, group.held) == (60, frozenset(), {})


def test_burst_is_divided_by_room(homes: TwoHomes) -> None:
    members = [homes.join("a", 0), homes.join("b", 0, room=5), homes.join("c", 1)]
    sent = homes.publish(90)
    first = [homes.taken(one) for one in members]
    assert len(first[1]) == 5
    assert min(len(first[0]), len(first[2])) >= 30
    rest = [number for _ in range(30) for one in members for number in homes.taken(one)]
    assert Counter([*rest, *(number for numbers in first for number in numbers)]) == Counter(sent)


def test_what_a_member_leaves_goes_to_the_others(homes: TwoHomes) -> None:
    one = homes.join("a", 0, room=3)
    homes.publish(3)
    assert [int(each.payload) for each in homes.client(one).take()] == [0, 1, 2]
    other = homes.join("b", 1)
    assert homes.taken(other) == []
    homes.leave(one)
    assert [(int(each.payload), each.duplicate) for each in homes.client(other).take()] == [
        (0, True),
        (1, True),
        (2, True),
    ]


def test_member_that_is_full_keeps_nothing_from_the_others(homes: TwoHomes) -> None:
    slow, quick = homes.join("a", 0, room=1), homes.join("b", 1, room=1)
    homes.publish(10)
    assert len(homes.client(slow).publishes) == 1
    taken = [number for _ in range(12) for number in homes.taken(quick)]
    assert len(taken) == 9
    homes.client(slow).inflight_limit = 0
    assert len(homes.taken(slow)) == 1
    sent = homes.publish(3)
    assert [number for _ in range(5) for number in homes.taken(quick)] == sent


def test_group_ends_with_its_last_member_elsewhere(homes: TwoHomes) -> None:
    one, other = homes.join("a", 0, topic_filter="$share/g/t"), homes.join("b", 0, topic_filter="$share/g/t")
    assert [group.topic_filter for group in homes.groups[1]] == ["$share/g/t"]
    for session in (one, other):
        homes.leave(session)
        homes.end(session)
    assert (list(homes.groups[0]), list(homes.groups[1])) == ([], [])


def test_queue_keeps_its_place_without_members(homes: TwoHomes) -> None:
    one = homes.join("a", 0)
    homes.leave(one)
    homes.end(one)
    assert list(homes.groups[0]) == []
    sent = homes.publish(3)
    assert homes.taken(homes.join("b", 0)) == sent


def test_deliveries_in_flight_are_the_members_own_when_it_unsubscribes(homes: TwoHomes) -> None:
    one, other = homes.join("a", 0), homes.join("b", 1)
    homes.leave(other)
    homes.publish(2)
    one.unsubscribe(FILTER)
    homes.delivery.start(one)
    homes.connect(other, 1)
    assert homes.taken(other) == []
    assert homes.taken(one) == [0, 1]
    sent = homes.publish(2)
    assert homes.taken(other) == sent
    assert homes.groups[1].find(homes.log, FILTER).members.keys() == {"b"}  # type: ignore[union-attr]


def test_answer_goes_back_with_what_members_may_have_had_when_the_members_are_gone(
    homes: TwoHomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = homes.join("a", 0)
    homes.publish(2)
    one.unsubscribe(FILTER)
    sent: list[bytes] = []
    monkeypatch.setattr(homes.wire, "tell", sent.append)
    answer = {"log": "mqtt", "filter": FILTER, "offsets": [1, 2], "again_below": 2, "once": False}
    homes.answered(1, json.dumps({"connection": 1, **answer}).encode())
    homes.loop.settle()
    (group,) = json.loads(sent[-1])["groups"]
    assert (group["returned"], group["again"]) == ([1, 2], [1])


def test_members_keep_what_they_have_over_a_cut(homes: TwoHomes) -> None:
    one, other = homes.join("a", 0), homes.join("b", 1)
    homes.publish(1)
    homes.publish(1)
    homes.cut()
    mine = homes.taken(one)
    sent = homes.publish(4)
    theirs = homes.taken(other)
    homes.tick()
    theirs += homes.taken(other)
    mine += homes.taken(one)
    assert sorted(mine + theirs) == [0, 1, *sent]
    (group,) = homes.groups[1]
    assert (group.held, group.open_offsets) == ({}, frozenset())


def test_messages_that_were_lost_with_a_connection_are_made_up_for(homes: TwoHomes) -> None:
    one = homes.join("a", 0)
    assert homes.wire is not None
    payload = [b"lost"]
    homes.log.append(payload[0], topic="t", flags=2)
    homes.loop.turn()  # the request is answered, and the answer is under way
    homes.cut()
    homes.tick()
    homes.tick()
    assert [each.payload for each in homes.client(one).take()] == payload


def seen(homes: TwoHomes, session: Session) -> list[tuple[int, bool]]:
    """Return number and DUP of what a member has received, without an acknowledgement."""
    return [(int(one.payload), one.duplicate) for one in homes.client(session).take()]


def test_first_delivery_has_no_dup_when_the_member_that_asked_did_not_take_it(homes: TwoHomes) -> None:
    one = homes.join("a", 0, room=2)
    homes.client(one).writable = False  # it cannot take what it has asked for
    sent = homes.publish(2)
    other = homes.join("b", 1)
    assert seen(homes, other) == [(number, False) for number in sent]
    homes.leave(other)
    homes.client(one).writable = True
    homes.delivery.resume(one)
    homes.loop.settle()
    assert seen(homes, one) == [(number, True) for number in sent], "another member has had them"


def test_first_delivery_has_no_dup_when_it_was_lost_with_a_connection(homes: TwoHomes) -> None:
    one = homes.join("a", 0)
    homes.log.append(b"7", topic="t", flags=2)
    homes.loop.turn()  # the answer is under way
    homes.cut()
    homes.tick()
    homes.tick()
    assert seen(homes, one) == [(7, False)]


def test_delivery_has_dup_when_what_a_member_has_left_was_lost_with_a_connection(homes: TwoHomes) -> None:
    one = homes.join("a", 0)
    sent = homes.publish(2)
    assert seen(homes, one) == [(number, False) for number in sent]
    homes.cut()
    homes.leave(one)
    other = homes.join("b", 1)
    homes.tick()
    assert seen(homes, other) == [(number, True) for number in sent]


def test_only_what_a_member_may_have_had_has_dup_when_the_leader_changes(homes: TwoHomes) -> None:
    one = homes.join("a", 0, room=3)
    saved = homes.documents(1)
    homes.publish(8)
    assert seen(homes, one) == [(number, False) for number in range(3)]
    homes.change_leader(saved)
    homes.tick()
    other = homes.join("b", 1)
    assert seen(homes, other) == [(number, False) for number in range(3, 8)]
    homes.change_leader(saved)
    third = homes.join("c", 1)
    assert seen(homes, third) == [(number, True) for number in range(8)], "no home has said what it has"


def test_what_a_member_left_to_a_leader_that_was_lost_has_dup_until_one_has_saved_it(homes: TwoHomes) -> None:
    one = homes.join("a", 0, room=3)
    saved = homes.documents(1)
    homes.publish(3)
    assert [number for number, _ in seen(homes, one)] == [0, 1, 2]
    homes.leave(one)  # and the leader hears of it
    homes.change_leader(saved)
    homes.tick()
    other = homes.join("b", 0, room=2)
    assert seen(homes, other) == [(0, True), (1, True)]
    homes.leave(other)
    homes.tick()
    saved = homes.documents(1)
    homes.publish(2)
    homes.change_leader(saved)
    homes.tick()
    assert seen(homes, homes.join("c", 1)) == [(0, True), (1, True), (2, False), (3, False), (4, False)]


@pytest.mark.parametrize("is_saved", [False, True])
def test_members_keep_what_they_have_when_the_leader_changes(homes: TwoHomes, is_saved: bool) -> None:
    one = homes.join("a", 0, room=4)
    saved = homes.documents(1)
    homes.publish(10)
    if is_saved:
        saved = homes.documents(1)
    homes.change_leader(saved)
    other = homes.join("b", 1, room=2)
    homes.tick()
    taken = [number for _ in range(10) for each in (other, one) for number in homes.taken(each)]
    if is_saved:
        assert Counter(taken) == Counter(range(10))
    else:
        assert set(taken) == set(range(10))


def test_acknowledgements_that_a_leader_had_not_saved_count(homes: TwoHomes) -> None:
    one = homes.join("a", 0)
    saved = homes.documents(1)
    homes.publish(10)
    assert homes.taken(one) == list(range(10))
    homes.change_leader(saved)
    homes.tick()
    sent = homes.publish(2)
    assert homes.taken(one) == sent


def test_members_are_known_and_what_they_had_is_assigned_again_when_their_home_changes(
    homes: TwoHomes,
) -> None:
    one = homes.join("a", 0)
    homes.publish(3)
    homes.change_home(homes.documents(0), [one])
    (branch,) = homes.groups[0]
    (group,) = homes.groups[1]
    assert list(branch.members) == ["a"]
    assert (list(group.members), group.held) == ([home_key(0)], {})
    sent = homes.publish(1)
    other = homes.join("b", 1)
    assert seen(homes, other) == [(0, True), (1, True), (2, True), *[(number, False) for number in sent]]


def test_what_a_home_has_goes_to_others_when_it_is_away_for_long(
    homes: TwoHomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes.join("a", 0)
    homes.publish(2)
    homes.cut()
    other = homes.join("b", 1)
    homes.leader.tick()
    assert homes.taken(other) == []
    monkeypatch.setattr("mqtt_front.delivery.remote_members._AWAY_S", 0.0)
    homes.leader.tick()
    homes.loop.settle()
    assert homes.taken(other) == [0, 1]


@pytest.mark.parametrize("run", range(4))
def test_no_record_is_lost_whatever_happens(homes: TwoHomes, run: int) -> None:
    """Nothing is twice unless a leader is lost without a save, or an acknowledgement with its client."""
    seed = run_seed(f"two homes {run}")
    chance = random.Random(seed)
    with told_on_failure(TIMESTONE_SEED=seed):
        sessions = [
            homes.join(f"m{number}", number % 2, room=chance.choice((1, 3, 100))) for number in range(5)
        ]
        taken: Counter[int] = Counter()
        for _ in range(300):
            act = chance.choice(("publish", "take", "take", "cut", "tick", "leave"))
            session = chance.choice(sessions)
            if act == "publish":
                homes.publish(chance.choice((1, 1, 7)))
            elif act == "take" and session.client is not None:
                taken.update(homes.taken(session))
            elif act == "cut":
                homes.cut()
            elif act == "tick":
                homes.tick()
            elif act == "leave":
                _come_or_go(homes, session, taken)
        for session in sessions:
            if session.client is None:
                homes.connect(session, homes.members[session.key][0])
        homes.tick()
        for _ in range(200):
            for session in sessions:
                taken.update(homes.taken(session))
            homes.tick()
        assert taken == Counter(range(homes.published))
        (group,) = homes.groups[1]
        assert (group.committed, group.open_offsets, group.held) == (homes.published, frozenset(), {})


def _come_or_go(homes: TwoHomes, session: Session, taken: Counter[int]) -> None:
    home, _, client = homes.members[session.key]
    if session.client is None:
        homes.connect(session, home, client.inflight_limit)
    else:
        client.take()  # without an acknowledgement
        homes.leave(session)


@pytest.mark.parametrize("run", range(4))
def test_no_record_is_lost_when_leaders_and_homes_are_lost(homes: TwoHomes, run: int) -> None:
    seed = run_seed(f"two homes that are lost {run}")
    chance = random.Random(seed)
    with told_on_failure(TIMESTONE_SEED=seed):
        lasting = [homes.join(f"m{number}", 0, room=chance.choice((1, 3, 100))) for number in range(2)]
        taken: Counter[int] = Counter()
        saved = homes.documents(1)
        for number in range(150):
            match chance.choice(("publish", "take", "take", "save", "tick", "leader", "home")):
                case "publish":
                    homes.publish(chance.choice((1, 1, 7)))
                case "take":
                    for _, session, _ in list(homes.members.values()):
                        if chance.random() < 0.5:
                            taken.update(homes.taken(session))
                case "save":
                    saved = homes.documents(1)
                case "tick":
                    homes.tick()
                case "leader" if chance.random() < 0.3:
                    homes.change_leader(saved)
                    homes.join(f"l{number}", 1, room=chance.choice((1, 5)))
                case "home" if chance.random() < 0.3:
                    homes.change_home(homes.documents(0), lasting)
                    lasting = [
                        homes.join(session.key, 0, room=chance.choice((1, 3, 100))) for session in lasting
                    ]
        for _ in range(200):
            for _, session, _ in list(homes.members.values()):
                taken.update(homes.taken(session))
            homes.tick()
        assert taken.keys() == set(range(homes.published))


def test_member_at_qos_2_gets_nothing_that_was_assigned_before_it_came(homes: TwoHomes) -> None:
    one, other = homes.join("a", 0), homes.join("b", 0)
    homes.log.append(b"7", topic="t", flags=2)
    homes.loop.turn()  # the answer to the first member is under way
    other.subscribe(Subscription(FILTER, 2), [LogSource.of(homes.log, homes.groups[0])])
    homes.delivery.start(other)
    homes.loop.settle()
    assert (seen(homes, one), seen(homes, other)) == ([], [])
    (group,) = homes.groups[1]
    assert group.held == {once_key(home_key(0)): {0}}, "it went back, and was assigned to be delivered once"
    homes.documents(1)
    assert [*seen(homes, one), *seen(homes, other)] == [(7, False)]


def translate(homes: TwoHomes, old: bytes, new: bytes) -> Callable[[], None]:
    """Have messages in both directions be those of another version. Return what ends that."""
    heard, answered = homes.leader.heard, homes.answered

    def other_heard(number: int, data: bytes, correspondent: Correspondent) -> None:
        heard(number, data.replace(old, new), correspondent)

    homes.leader.heard = other_heard  # type: ignore[method-assign]
    homes.answered = lambda shard, data: answered(shard, data.replace(old, new))

    def end() -> None:
        homes.leader.heard, homes.answered = heard, answered  # type: ignore[method-assign]

    return end


@pytest.mark.parametrize("field", ["connected", "again_below"])
def test_no_record_is_lost_and_a_warning_is_logged_once_when_another_version_is_not_understood(
    homes: TwoHomes, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    members = [homes.join("a", 0), homes.join("c", 1)]
    homes.publish(4)
    assert sorted(number for one in members for number in homes.taken(one)) == [0, 1, 2, 3]
    end = translate(homes, f'"{field}"'.encode(), b'"other"')
    taken = set()
    for _ in range(5):
        homes.publish(3)
        homes.tick()
        for one in members:
            taken.update(homes.taken(one))
    assert sum("is not understood" in line for line in caplog.messages) == 1
    end()  # its node is upgraded
    homes.cut()
    for _ in range(10):
        homes.tick()
        for one in members:
            taken.update(homes.taken(one))
    assert taken == set(range(4, homes.published))
    homes.publish(4)
    assert all(homes.taken(one) for one in members)


def test_fields_of_a_later_version_are_ignored(homes: TwoHomes, caplog: pytest.LogCaptureFixture) -> None:
    translate(homes, b'{"', b'{"later": {}, "')
    members = [homes.join("a", 0), homes.join("c", 1)]
    homes.publish(4)
    assert [len(homes.taken(one)) for one in members] == [2, 2]
    assert caplog.messages == []


def test_member_waits_for_the_copy_of_its_node(homes: TwoHomes) -> None:
    one, end = homes.join("a", 0), homes.log.end_offset
    (branch,) = homes.groups[0]
    assert isinstance(branch, RemoteGroup)
    branch.given([end + 1, end], again_below=0, once=False)
    homes.loop.settle()
    assert homes.client(one).publishes == []
    homes.leader.close()  # it would assign them again
    homes.publish(1)
    assert homes.taken(one) == [0]
    homes.publish(1)
    assert homes.taken(one) == [1]
