"""A will is published once: at once, after its delay, or when the session ends first; not if the client reconnects in
time. A killed server publishes it at its next start."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import timestone
from mqtt_front.codec.packets import Connack, Connect, Disconnect, Will
from mqtt_front.codec.properties import Properties
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.wills.will_document import decode_will
from mqtt_front.wills.will_records import Place
from mqtt_front.wills.wills import SPACE, KeptWill, Wills
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for
from timestone.disk.steady_clock import SteadyClock
from timestone.store import Store

PLACE = Place("mqtt", 7)
FOREVER = Properties(session_expiry_interval=0xFFFFFFFF)


class Published:
    """Wills over a real store, with what they published."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor) -> None:
        self.clock = StepClock()
        self.steady = SteadyClock(self.clock, None)
        self._topics: list[str] = []
        self.in_log: list[str] = []
        """Keys of wills that an earlier process has published."""
        self.refusals = 0
        self.store, self.executor, self.loop = store, executor, ManualLoop()
        self.wills = self.restarted()

    def restarted(self, grace_s: float = 0.0) -> Wills:
        """Return the parts as after a kill: only the state on the disk is left."""
        wills = Wills(
            self._publish, self, self.store.documents, self.loop, self.executor,
            log=logging.getLogger("test"), time=PassingTime(self.clock, steady=self.steady), grace_s=grace_s,
        )  # fmt: skip
        wills.load()
        self.wills = wills
        return wills

    @property
    def topics(self) -> list[str]:
        """Return the topics of published wills, when all documents are up to date."""
        self.loop.run_until(lambda: self.wills.saved)
        return self._topics

    def place(self, topic: str, session_key: str) -> Place | None:
        return None if topic == "forbidden" else PLACE

    def holds(self, place: Place, topic: str, key: str) -> bool:
        assert place == PLACE
        return key in self.in_log

    def _publish(self, key: str, client_id: str, will: Will, done: Callable[[bool], None]) -> None:
        if self.refusals:
            self.refusals -= 1
            done(False)
        else:
            self._topics.append(will.topic)
            done(True)

    def keep(self, client_id: str, will: Will, expiry_s: int = 100) -> KeptWill:
        """Kept, and durable."""
        known: list[bool] = []
        kept = self.wills.keep(client_id, will, expiry_s, lambda: known.append(True))
        self.loop.run_until(lambda: bool(known))
        return kept

    def left(self, client_id: str, will: Will, expiry_s: int) -> None:
        self.wills.left(self.keep(client_id, will, expiry_s), expiry_s)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))
        self.wills.publish_due()

    def stored(self) -> int:
        self.loop.run_until(lambda: self.wills.saved)
        return len(self.store.documents.items(SPACE))


@pytest.fixture
def published(store: Store) -> Iterator[Published]:
    with ThreadPoolExecutor(1) as executor:
        yield Published(store, executor)


def will(topic: str, delay_s: int = 0) -> Will:
    return Will(topic, b"", properties=Properties(will_delay_interval=delay_s))


def test_will_without_a_delay_is_published_at_once(published: Published) -> None:
    published.left("c", will("a"), 100)
    assert published.topics == ["a"]
    assert published.stored() == 0


def test_will_is_published_after_its_delay_or_at_the_end_of_the_session(published: Published) -> None:
    published.left("c", will("delay", 5), 100)
    published.left("d", will("session", 100), 3)
    published.left("e", will("no session", 100), 0)
    assert published.topics == ["no session"]
    published.pass_time(4)
    assert published.topics == ["no session", "session"]
    published.pass_time(1)
    assert published.topics == ["no session", "session", "delay"]
    assert published.stored() == 0


def test_reconnect_in_time_cancels_the_will(published: Published) -> None:
    published.left("c", will("a", 5), 100)
    published.wills.returned("c", session_continues=True)
    published.left("c", will("b", 5), 100)
    published.pass_time(100)
    assert published.topics == ["b"]
    assert published.stored() == 0


def test_cancelled_wills_do_not_accumulate(published: Published) -> None:
    kept = published.keep("a", will("last", 1000), 1000)
    for _ in range(5000):
        published.wills.left(kept, 1000)
        published.wills.returned("a", session_continues=True)
    assert len(published.wills._schedule._heap) < 2000
    published.pass_time(5000)
    assert published.topics == []


def test_clean_start_ends_the_session_and_publishes_its_will(published: Published) -> None:
    published.left("c", will("a", 5), 100)
    published.wills.returned("c", session_continues=False)
    published.pass_time(100)
    assert published.topics == ["a"]


def test_late_reconnect_does_not_cancel_the_will(published: Published) -> None:
    published.left("c", will("a", 5), 100)
    published.clock.advance(6_000)
    published.wills.returned("c", session_continues=True)
    assert published.topics == ["a"]


def test_wills_of_clients_connected_at_a_kill_are_due_at_the_next_start(
    published: Published,
) -> None:
    published.keep("now", will("now"))
    published.keep("later", will("later", 5))
    published.keep("session", will("session", 100), 3)
    published.wills.revoke(published.keep("goodbye", will("goodbye")))
    assert published.stored() == 3
    published.restarted().publish_due()
    assert published.topics == ["now"]
    published.pass_time(3)
    assert published.topics == ["now", "session"]
    assert published.stored() == 1
    published.restarted()  # killed again: the delay does not start from the beginning
    published.pass_time(2)
    assert published.topics == ["now", "session", "later"]
    assert published.stored() == 0


def test_running_delay_continues_after_a_restart(published: Published) -> None:
    published.left("c", will("a", 5), 100)
    published.left("back", will("b", 5), 100)
    published.stored()
    published.clock.advance(4_000)
    published.restarted().returned("back", session_continues=True)
    published.pass_time(1)
    assert published.topics == ["a"]


def test_delay_is_unchanged_when_the_clock_is_set(published: Published) -> None:
    published.left("c", will("a", 5), 100)
    published.left("back", will("b", 5), 100)
    published.clock.step(86_400_000)
    published.pass_time(4)
    published.wills.returned("back", session_continues=True)
    assert published.topics == []
    published.clock.step(-2 * 86_400_000)
    published.pass_time(1)
    assert published.topics == ["a"]


@pytest.mark.parametrize("days", [-20000, -1, 1, 3650])
def test_delay_continues_when_the_clock_of_a_restart_is_wrong(published: Published, days: int) -> None:
    published.left("c", will("a", 5), 100)
    published.stored()
    published.clock.advance(2_000)
    published.clock.step(days * 86_400_000)
    published.restarted()
    published.pass_time(2)
    assert published.topics == []
    published.pass_time(1)
    assert published.topics == ["a"]


def test_wills_of_two_connections_of_one_client_are_separate(published: Published) -> None:
    published.refusals = 1
    published.left("c", will("first"), 100)
    second = published.keep("c", will("second"))
    assert published.stored() == 2
    published.loop.pass_time(10)
    assert published.topics == ["first"]
    assert published.stored() == 1
    published.wills.left(second, 100)
    assert published.topics == ["first", "second"]


def test_will_is_published_later_when_it_cannot_be_stored(published: Published) -> None:
    published.refusals = 2
    published.left("c", will("a"), 100)
    assert published.stored() == 1
    published.loop.pass_time(11)
    assert published.topics == ["a"]
    assert published.stored() == 0


def test_place_of_a_will_is_durable_before_it_is_published(published: Published) -> None:
    published.refusals = 1
    published.left("c", will("a"), 100)
    assert published.stored() == 1
    (document,) = published.store.documents.items(SPACE).values()
    assert decode_will(document).place == PLACE
    published.loop.pass_time(10)
    assert published.topics == ["a"]


def test_start_searches_the_log_for_a_will_being_published_at_a_kill(published: Published) -> None:
    published.refusals = 2
    first, second = published.keep("first", will("first")), published.keep("second", will("second"))
    for kept in (first, second):
        published.wills.left(kept, 100)
    assert published.stored() == 2
    published.in_log = [first.key]
    published.restarted().publish_due()
    assert published.topics == ["second"]
    assert published.stored() == 0


def test_invalid_will_is_removed(published: Published) -> None:
    published.left("c", will("forbidden"), 100)
    assert published.stored() == 0


def test_undecodable_document_is_reported_and_not_changed(
    published: Published, caplog: pytest.LogCaptureFixture
) -> None:
    published.store.documents.put_many(SPACE, {"strange": b"TWIL\x63" + bytes(40)})
    published.restarted().publish_due()
    assert published.topics == []
    assert "'strange' is left alone" in caplog.text and "version 99" in caplog.text
    assert published.stored() == 1


def test_wills_of_clients_that_a_server_has_lost_wait_for_them_when_there_is_a_grace(
    published: Published,
) -> None:
    for name, delay_s in (("back", 0), ("clean", 0), ("away", 0), ("late", 30)):
        published.keep(name, will(name, delay_s))
    published.restarted(10).publish_due()
    published.wills.returned("back", session_continues=True)
    published.wills.returned("clean", session_continues=False)
    published.pass_time(9)
    assert published.topics == []
    published.restarted(10)  # the grace begins again with a further server
    published.pass_time(9)
    assert published.topics == []
    published.pass_time(1)
    assert published.topics == ["away"]
    published.pass_time(20)
    assert published.topics == ["away", "late"]
    assert published.stored() == 0


def test_will_is_published_when_its_client_is_back_after_the_grace(published: Published) -> None:
    published.keep("c", will("a"))
    published.restarted(10)
    published.clock.advance(11_000)
    published.wills.returned("c", session_continues=True)
    assert published.topics == ["a"]


@pytest.mark.crash
def test_killed_server_publishes_the_wills_of_connected_clients_at_the_next_start(tmp_path: Path) -> None:
    """Kill -9 at the moment of CONNACK: the will without a delay is published at the next start, the delayed one later,
    and never that of a client that reconnected in time or disconnected normally."""
    delayed, much_delayed = Properties(will_delay_interval=1), Properties(will_delay_interval=3600)
    with MqttProcess(tmp_path) as server:
        clients = []
        for name, properties in (
            ("gone", None),
            ("late", delayed),
            ("back", much_delayed),
            ("goodbye", None),
        ):
            client = RawClient(server.address, 5)
            one = Will(f"wills/{name}", b"bye", 1, True, properties or Properties())
            if name == "goodbye":
                client.connect(name, will=one)
                client.send(Disconnect())
                client.expect_closed()
            else:
                client.connect(name, will=one, properties=FOREVER)
            clients.append(client)
        with RawClient(server.address) as watcher:
            watcher.connect("watcher", clean=False)
            watcher.subscribe("wills/#")
        server.kill()
        for client in clients:
            client.close()
    with MqttProcess(tmp_path) as server:
        with RawClient(server.address, 5) as back, RawClient(server.address) as watcher:
            assert back.connect("back", clean=False, properties=FOREVER).session_present
            assert watcher.connect("watcher", clean=False).session_present
            assert [one.topic for one in watcher.receive(1)] == ["wills/gone"]
            assert [(one.topic, one.payload, one.qos) for one in watcher.receive(1)] == [
                ("wills/late", b"bye", 1)
            ]
            watcher.expect_silence()
            with timestone.view(tmp_path) as view:
                wait_for(lambda: not view.documents(SPACE))  # none is kept, for later either
        server.kill()
    with timestone.open(tmp_path) as store:
        assert [record.topic for record in store.log("mqtt").reader()] == ["wills/gone", "wills/late"]


def test_will_published_before_a_kill_is_not_published_again(tmp_path: Path) -> None:
    kept: dict[str, bytes | None] = {}
    with timestone.open(tmp_path / "data") as store:
        put_many = store.documents.put_many

        def forgetful(space: str, items: Mapping[str, bytes | None]) -> None:
            if space == SPACE:
                kept.update({key: document for key, document in items.items() if document is not None})
            put_many(space, items)

        store.documents.put_many = forgetful  # type: ignore[method-assign]
        log = store.log("mqtt")
        with mqtt_server(tmp_path, store=store) as server:
            with RawClient(server.address) as client:
                client.connect("client", will=Will("t", b"bye"))
            wait_for(lambda: log.end_offset == 1)
        assert not store.documents.items(SPACE)
        put_many(SPACE, kept)  # as if it had been killed before that
        with mqtt_server(tmp_path, store=store):
            assert not store.documents.items(SPACE)
        assert [record.payload for record in log.reader()] == [b"bye"]


def test_delayed_will_is_kept_for_the_next_start_when_the_server_stops(tmp_path: Path) -> None:
    clock = StepClock()
    with timestone.open(tmp_path / "data", clock=clock) as store:
        with mqtt_server(tmp_path, store=store, clock=clock) as server:
            with RawClient(server.address, 5) as client:
                late = Will("late", b"", properties=Properties(will_delay_interval=10))
                client.connect("client", will=late, properties=FOREVER)
            wait_for(lambda: server.status()["connections"] == 0)
            server.pass_time(6)
        log = store.log("mqtt")
        assert log.end_offset == 0
        with mqtt_server(tmp_path, store=store, clock=clock) as server:
            server.pass_time(3)
            assert log.end_offset == 0
            server.pass_time(2)
            wait_for(lambda: log.end_offset == 1)


def test_connack_waits_until_the_will_is_durable(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store, mqtt_server(tmp_path, store=store) as server:
        with RawClient(server.address) as client:
            client.connect("client", will=Will("t", b""))
            assert len(store.documents.items(SPACE)) == 1
        wait_for(lambda: len(store.documents.items(SPACE)) == 0)
        with RawClient(server.address) as client:
            client.connect("client", will=Will("t", b""))
            client.send(Disconnect())
            client.expect_closed()
        wait_for(lambda: len(store.documents.items(SPACE)) == 0)
        assert store.log("mqtt").end_offset == 1


def test_will_over_the_retained_limit_is_published_without_being_retained(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, retained_count=1) as server, RawClient(server.address, 5) as watcher:
        watcher.connect("watcher")
        watcher.subscribe("will/#")
        for number in range(3):
            with RawClient(server.address, 5) as client:
                client.connect(f"c{number}", will=Will(f"will/{number}", b"x", 1, True))
            assert watcher.receive(1)[0].topic == f"will/{number}"
        wait_for(lambda: (server.status()["retained"], server.status()["retained_refused"]) == (1, 2))


def test_refused_client_leaves_no_will(store: Store) -> None:
    """Two connections of one client at the same moment: the first may be taken over before its CONNACK."""
    with mqtt_server(Path(), store=store) as server:
        with RawClient(server.address, 5) as first, RawClient(server.address, 5) as second:
            for client in (first, second):
                client.send(Connect("one", 5, will=Will("t", b"")))
            answers = [client.expect(Connack).reason for client in (first, second)]
        assert set(answers) <= {0, 0x89}
        wait_for(lambda: server.status()["connections"] == 0 and not store.documents.items(SPACE))
        assert store.log("mqtt").end_offset == answers.count(0)
