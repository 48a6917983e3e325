"""Sessions are saved off the loop, many in one transaction, and end when they expire."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_document import NEVER_S, decode_session
from mqtt_front.sessions.session_store import SPACE, Sessions
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.manual_loop import ManualLoop
from tests.support.step_clock import StepClock
from tests.support.waiting import TIMEOUT_S
from timestone.disk.steady_clock import SteadyClock
from timestone.store import Store


class SlowDocuments:
    """The store's documents, behind a gate, and counting transactions."""

    def __init__(self, store: Store) -> None:
        self._documents = store.documents
        self.gate = threading.Event()
        self.gate.set()
        self.transactions: list[dict[str, bytes | None]] = []
        self.failures = 0

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        assert self.gate.wait(TIMEOUT_S)
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.transactions.append(dict(items))
        self._documents.put_many(space, items)

    def items(self, space: str) -> dict[str, bytes]:
        return self._documents.items(space)


class Parts:
    def __init__(self, store: Store, executor: ThreadPoolExecutor) -> None:
        self.loop, self.clock, self.documents = ManualLoop(), StepClock(), SlowDocuments(store)
        self.steady = SteadyClock(self.clock, None)
        self.executor = executor
        self.logs = [store.log("mqtt")]
        self.receipts = Receipts(self.logs)
        self.sessions = self.restarted()
        self.documents.transactions.clear()

    def restarted(self) -> Sessions:
        self.receipts = Receipts(self.logs)
        sessions = Sessions(
            self.documents,
            self.loop,
            self.executor,
            self.receipts,
            log=logging.getLogger("test"),
            time=PassingTime(self.clock, steady=self.steady),
        )
        sessions.load()
        return sessions

    def restore(self, client_id: str, document: bytes) -> Session:
        return decode_session(client_id, document, lambda name: None, lambda topic_filter: [], self.receipts)

    def stored(self) -> set[str]:
        """Return the clients with a document."""
        return {client_id for client_id in self.documents.items(SPACE) if client_id}

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))

    def saved(self) -> None:
        self.loop.run_until(lambda: self.sessions.saved)


@pytest.fixture
def parts(store: Store) -> Iterator[Parts]:
    with ThreadPoolExecutor(1) as executor:
        made = Parts(store, executor)
        yield made
        made.documents.gate.set()
        made.saved()


def visit(parts: Parts, client_id: str, expiry_s: int) -> None:
    """Connect and disconnect a client."""
    session = Session(client_id, expiry_s)
    parts.sessions.connect(session)
    parts.sessions.disconnect(session)


def test_session_is_resumed_only_by_its_own_client(parts: Parts) -> None:
    visit(parts, "a", 100)
    assert parts.sessions.take("b", parts.restore) is None
    session = parts.sessions.take("a", parts.restore)
    assert session is not None and session.client_id == "a"
    assert parts.sessions.take("a", parts.restore) is None, "it was taken"


def test_temporary_session_leaves_no_document(parts: Parts) -> None:
    visit(parts, "a", 0)
    assert len(parts.sessions) == 0
    assert parts.sessions.take("a", parts.restore) is None
    parts.saved()
    assert parts.documents.transactions == []


def test_sessions_survive_a_restart(parts: Parts) -> None:
    visit(parts, "a", 100)
    visit(parts, "b", NEVER_S)
    parts.saved()
    again = parts.restarted()
    assert len(again) == 2
    assert again.take("a", parts.restore) is not None


def test_connected_session_survives_a_killed_server(parts: Parts) -> None:
    session = Session("a", 100)
    parts.sessions.connect(session)
    parts.sessions.save_changed()
    parts.saved()
    parts.pass_time(99_999)
    again = parts.restarted()
    assert again.take("a", parts.restore) is not None, "its time begins when the server is back"


def test_session_resumed_late_does_not_expire_when_the_server_dies_at_once(parts: Parts) -> None:
    visit(parts, "a", 100)
    parts.pass_time(99)
    session = parts.sessions.take("a", parts.restore)
    assert session is not None
    parts.sessions.connect(session)
    parts.saved()
    parts.pass_time(2)
    assert parts.restarted().take("a", parts.restore) is not None, "its client was there two seconds ago"


def test_repeated_server_deaths_do_not_keep_a_session_forever(parts: Parts) -> None:
    parts.sessions.connect(Session("a", 100))
    parts.saved()
    parts.restarted()
    parts.pass_time(60)
    parts.restarted()
    parts.pass_time(60)
    assert parts.restarted().take("a", parts.restore) is None, "its client left 120 seconds ago"


def test_session_resumed_as_temporary_is_removed_after_a_kill(parts: Parts) -> None:
    visit(parts, "a", 100)
    session = parts.sessions.take("a", parts.restore)
    assert session is not None
    session.expiry_s = 0
    called: list[int] = []
    parts.documents.gate.clear()
    parts.sessions.connect(session)
    parts.sessions.once_saved("a", lambda: called.append(len(parts.restarted())))
    parts.loop.settle()
    assert called == []
    parts.documents.gate.set()
    parts.loop.run_until(lambda: bool(called))
    assert called == [0]


def test_sessions_end_when_they_expire(parts: Parts) -> None:
    visit(parts, "short", 10)
    visit(parts, "long", 1000)
    visit(parts, "endless", NEVER_S)
    parts.pass_time(10)
    parts.sessions.expire()
    assert len(parts.sessions) == 2
    assert parts.sessions.expired_count == 1
    parts.pass_time(1e9)
    parts.sessions.expire()
    parts.saved()
    assert parts.stored() == {"endless"}


def test_expired_session_is_not_resumed_before_it_is_removed(parts: Parts) -> None:
    visit(parts, "a", 10)
    parts.pass_time(11)
    assert parts.sessions.take("a", parts.restore) is None
    parts.saved()
    assert parts.stored() == set()


def test_no_session_expires_when_the_clock_is_set_a_day_ahead(parts: Parts) -> None:
    visit(parts, "a", 3600)
    visit(parts, "b", 3600)
    parts.clock.step(86_400_000)
    parts.sessions.expire()
    assert parts.sessions.take("a", parts.restore) is not None
    parts.pass_time(3601)
    parts.sessions.expire()
    assert len(parts.sessions) == 0


def test_no_session_lives_longer_when_the_clock_is_set_back(parts: Parts) -> None:
    visit(parts, "here", 3600)
    parts.saved()
    parts.clock.step(-86_400_000)
    again = parts.restarted()
    parts.pass_time(3601)
    for sessions in (parts.sessions, again):
        sessions.expire()
        assert len(sessions) == 0


@pytest.mark.parametrize("days", [-20000, -1, 1, 3650])
def test_session_lives_for_its_time_when_the_clock_of_a_restart_is_wrong(parts: Parts, days: int) -> None:
    visit(parts, "a", 3600)
    parts.saved()
    parts.pass_time(1800)
    parts.clock.step(days * 86_400_000)
    parts.sessions = parts.restarted()
    parts.sessions.expire()
    assert "a" in parts.sessions
    parts.pass_time(1799)
    parts.sessions.expire()
    assert "a" in parts.sessions
    parts.pass_time(1)
    parts.sessions.expire()
    assert len(parts.sessions) == 0


def test_frequently_reconnecting_client_has_one_expiry_entry(parts: Parts) -> None:
    for _ in range(100):
        parts.sessions.take("a", parts.restore)
        visit(parts, "a", 1000)
        parts.pass_time(1)
    assert len(parts.sessions._expiries._entries) == 1
    parts.pass_time(950)
    parts.sessions.expire()
    assert len(parts.sessions) == 1, "the time counts from the last visit"
    parts.pass_time(60)
    parts.sessions.expire()
    assert len(parts.sessions) == 0


@pytest.mark.slow
def test_many_abandoned_sessions_are_reclaimed(parts: Parts) -> None:
    for number in range(20_000):
        visit(parts, f"client-{number}", 60)
    parts.pass_time(61)
    parts.sessions.expire()
    assert len(parts.sessions) == 0 and not parts.sessions._expiries._heap
    parts.saved()
    assert parts.stored() == set()


def test_changes_during_a_transaction_are_saved_with_the_next(parts: Parts) -> None:
    parts.documents.gate.clear()
    visit(parts, "first", 100)
    parts.loop.settle()
    for number in range(50):
        visit(parts, f"later-{number}", 100)
    parts.documents.gate.set()
    parts.saved()
    assert [len(items) for items in parts.documents.transactions] == [1, 50]


def test_save_callbacks_run_in_order_when_durable(parts: Parts) -> None:
    called: list[str] = []
    parts.documents.gate.clear()
    session = Session("a", 100)
    parts.sessions.connect(session)
    parts.sessions.save(session, lambda: called.append("first"))
    parts.loop.settle()
    parts.sessions.save(session, lambda: called.append("second"))
    parts.loop.settle()
    assert called == []
    parts.documents.gate.set()
    parts.saved()
    assert called == ["first", "second"]


def test_temporary_session_does_not_wait_for_a_save(parts: Parts) -> None:
    called: list[str] = []
    session = Session("a", 0)
    parts.sessions.connect(session)
    parts.sessions.save(session, lambda: called.append("now"))
    assert called == ["now"]


def test_failed_save_is_logged_and_repeated(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []
    parts.documents.failures = 1
    session = Session("a", 100)
    parts.sessions.connect(session)
    parts.sessions.save(session, lambda: called.append("x"))
    parts.loop.run_until(lambda: bool(called))
    assert "could not save 1 of mqtt.session: no space left" in caplog.text
    parts.loop.pass_time(2)
    parts.saved()
    assert parts.stored() == {"a"}


def test_discarded_session_is_removed_permanently(parts: Parts) -> None:
    visit(parts, "a", 100)
    parts.saved()
    parts.sessions.discard("a")
    parts.saved()
    assert len(parts.restarted()) == 0


def test_a_session_that_no_longer_outlives_its_connection_is_deleted(parts: Parts) -> None:
    session = Session("a", 100)
    parts.sessions.connect(session)
    parts.sessions.save_changed()
    parts.saved()
    session.expiry_s = 0
    parts.sessions.disconnect(session)
    parts.saved()
    assert parts.stored() == set()


def test_document_of_a_newer_version_is_reported_and_not_changed(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    parts.documents.put_many(SPACE, {"new": b"TSES\x63" + bytes(40)})
    again = parts.restarted()
    assert len(again) == 0
    assert "'new' is left alone" in caplog.text and "version 99" in caplog.text
    assert parts.stored() == {"new"}


@pytest.mark.parametrize("damaged", [b'{"mqtt": "x"}', b'{"mqtt": -1}', *DAMAGED_JSON.values()])
def test_sessions_are_restored_when_the_log_positions_are_damaged(
    parts: Parts, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    visit(parts, "a", 60)
    parts.saved()
    parts.documents.put_many(SPACE, {"": damaged})
    again = parts.restarted()
    assert "a" in again
    assert len(caplog.messages) == 1 and "read from their beginnings" in caplog.text


@pytest.mark.parametrize("damaged", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_undecodable_document_affects_only_its_session(
    parts: Parts, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    visit(parts, "bad", 60)
    visit(parts, "good", 60)
    parts.saved()
    head = parts.documents.items(SPACE)["bad"][:20]
    parts.documents.put_many(SPACE, {"bad": head + damaged})
    again = parts.restarted()
    assert again.take("bad", parts.restore) is None
    assert again.take("good", parts.restore) is not None
    assert len(caplog.messages) == 1 and "session of 'bad' is lost" in caplog.text
