"""Distribution of records over members: each record once. No sockets; the feeds are real."""

import logging
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtt_front.delivery.delivery import Delivery
from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.sessions.session import Session
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import FakeClient
from timestone.log import Log
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_access.throttled_log import ThrottledLog

FILTER = "$queue/g/t"


class Members:
    """Sessions that share one subscription, over a delivery that is turned by hand."""

    def __init__(self, log: Log, executor: ThreadPoolExecutor) -> None:
        self.log, self.loop = log, ManualLoop()
        self.delivery = Delivery(
            self.loop, executor, ThrottledLog(logging.getLogger("test")), self, PassingTime()
        )
        self.source = LogSource.of(log)
        self.group = self.source.groups.get(log, FILTER)

    def changed(self, session: Session) -> None:
        """Do not save."""

    def save(self, session: Session, then: object) -> None:
        raise AssertionError("nothing is at QoS 2")

    def join(self, name: str, room: int = 65_535) -> tuple[Session, FakeClient]:
        session, client = Session(name), FakeClient(inflight_limit=room)
        session.client = client
        session.subscribe(Subscription(FILTER, 1), [self.source])
        session.attach(self.delivery.wake)
        self.delivery.start(session)
        self.loop.settle()
        return session, client

    def die(self, session: Session) -> None:
        session.client = None
        session.detach()
        self.source.groups.session_ended(session.client_id)
        self.loop.settle()

    def publish(self, first: int, end: int, topic: str = "t") -> None:
        payloads = [b"%d" % number for number in range(first, end)]
        self.log.append_batch(WriteBatch(payloads, self.log.topic_id(topic), flags=2), ack="written")
        self.loop.settle()

    def acknowledge(self, session: Session, packet_ids: list[int]) -> None:
        session.acknowledged(packet_ids)
        self.delivery.resume(session)
        self.loop.settle()


@pytest.fixture
def members(store: Store) -> Iterator[Members]:
    with ThreadPoolExecutor(1) as executor:
        yield Members(store.log("mqtt"), executor)


def test_one_member_is_woken_for_one_matching_message(members: Members) -> None:
    clients = [members.join(name)[1] for name in "abc"]
    wakeups = members.loop.wakeup_count
    members.publish(0, 5, topic="other")
    assert members.loop.wakeup_count == wakeups
    members.publish(0, 1)
    assert members.loop.wakeup_count == wakeups + 1
    assert sum(len(client.publishes) for client in clients) == 1


def test_committed_offset_is_the_lowest_open_one(members: Members) -> None:
    (a, at_a), (b, _) = members.join("a", room=1), members.join("b", room=100)
    members.publish(0, 40)
    assert members.group.committed == 0
    low, high = (a, b) if at_a.publishes and at_a.publishes[0].payload == b"0" else (b, a)
    members.acknowledge(high, list(high.in_flight))
    assert members.group.committed == 0
    while low.in_flight:
        members.acknowledge(low, list(low.in_flight))
    assert members.group.committed >= 39


def test_group_stays_bounded_when_a_member_keeps_the_first_message(
    members: Members,
) -> None:
    group = members.group
    group.sent([0])
    for offset in range(1, 20_000):
        group.sent([offset])
        group.acknowledged([offset])
    assert group.committed == 0 and len(group._lowest) < 2000
    group.acknowledged([0])
    assert group.committed == group.seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_message_is_acknowledged_once_in_random_histories(members: Members, seed: int) -> None:
    """Members of any size join, acknowledge in any order, and die. What none of them acknowledged comes again; what one
    did never does."""
    rng = random.Random(seed)
    alive: list[tuple[Session, FakeClient]] = []
    done: list[int] = []
    published, number = 0, 0
    for _ in range(150):
        step = rng.random()
        if step < 0.15 or not alive:
            number += 1
            alive.append(members.join(f"m{number}", rng.choice([1, 2, 10, 500])))
        elif step < 0.25:
            session, _ = alive.pop(rng.randrange(len(alive)))
            members.die(session)
        elif step < 0.5:
            count = rng.choice([1, 3, 60, 300])
            members.publish(published, published + count)
            published += count
        else:
            session, client = rng.choice(alive)
            waiting = [one for one in client.publishes if one.packet_id in session.in_flight]
            chosen = rng.sample(waiting, rng.randint(0, len(waiting)))
            done += [int(one.payload) for one in chosen]
            members.acknowledge(session, [one.packet_id for one in chosen])
            client.publishes = [one for one in waiting if one not in chosen]
    session, client = members.join("last")
    for other, _ in alive:
        members.die(other)
    rest = [int(one.payload) for one in client.publishes]
    while session.in_flight:
        members.acknowledge(session, list(session.in_flight))
        rest = [int(one.payload) for one in client.publishes]
    assert sorted(done + rest) == list(range(published)), (published, len(done), len(rest))
    assert members.group.committed == members.log.end_offset and not members.group.open_offsets
