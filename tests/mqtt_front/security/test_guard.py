import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtt_front.codec.reasons import Reason
from mqtt_front.security import guard as module
from mqtt_front.security.guard import Guard
from mqtt_front.security.identity import Credentials, Identity, Refusal
from mqtt_front.security.settings import LockoutSettings, SecuritySettings
from mqtt_front.security.sources import Sources
from tests.support.manual_loop import ManualLoop

LOG = logging.getLogger("timestone.mqtt")


class Known:
    """Knows one password for everybody; may be held up."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        assert self.free.wait(10)
        if credentials.password == b"raise":
            raise RuntimeError("broken plug-in")
        return Identity(credentials.user) if credentials.password == b"right" else Refusal("wrong")


class Door:
    """A guard in the test's hands."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.loop, self.known = ManualLoop(), Known()
        settings = SecuritySettings(lockout=LockoutSettings(failures=3))
        self.guard = Guard(settings, self.loop, executor, log=LOG)
        self.guard.use(Sources((self.known,), None, None, None))
        self.outcomes: list[Identity | Refusal] = []

    def knock(self, user: str | None = "u", password: bytes | None = None, **more: str) -> None:
        credentials = Credentials("c", user, password, "192.0.2.1", **more)
        self.guard.admit(credentials, self.outcomes.append, allow_anonymous=False)

    def login(self, password: bytes) -> Identity | Refusal:
        count = len(self.outcomes)
        self.knock("u", password)
        self.loop.run_until(lambda: len(self.outcomes) > count)
        return self.outcomes[-1]


@pytest.fixture
def door() -> Iterator[Door]:
    with ThreadPoolExecutor(2) as executor:
        made = Door(executor)
        yield made
        made.known.free.set()


def test_a_login_is_checked_in_a_thread_and_decided_in_the_loop(door: Door) -> None:
    door.known.free.clear()
    door.knock(password=b"right")
    door.loop.settle()
    assert door.outcomes == []
    door.known.free.set()
    door.loop.run_until(lambda: bool(door.outcomes))
    assert door.outcomes == [Identity("u")]


def test_wrong_passwords_lock_the_user_out_even_with_the_right_one(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert door.login(b"wrong") == Refusal("wrong")
    assert "too many failed logins of user 'u' from 192.0.2.1" in caplog.text
    answer = door.login(b"right")
    assert isinstance(answer, Refusal) and answer.reason is Reason.BANNED
    assert (door.guard.counts.refused, door.guard.counts.locked_out) == (4, 1)


def test_a_plug_in_that_raises_lets_nobody_in_and_locks_nobody_out(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        answer = door.login(b"raise")
        assert isinstance(answer, Refusal) and answer.reason is Reason.SERVER_UNAVAILABLE
    assert "broken plug-in" in caplog.text
    assert door.login(b"right") == Identity("u")


def test_more_logins_than_can_be_checked_are_told_to_come_back(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 5)
    door.known.free.clear()
    for _ in range(7):
        door.knock(password=b"right")
    assert [each.reason for each in door.outcomes if isinstance(each, Refusal)] == [Reason.SERVER_BUSY] * 2
    door.known.free.set()
    door.loop.run_until(lambda: len(door.outcomes) == 7)
    assert door.login(b"right") == Identity("u")


def test_a_client_that_says_nothing_is_let_in_where_that_is_allowed(door: Door) -> None:
    door.knock(None)
    assert door.outcomes == [Refusal("it does not say who it is", Reason.NOT_AUTHORIZED)]
    door.guard.admit(Credentials("c"), door.outcomes.append, allow_anonymous=True)
    assert door.outcomes[-1] == Identity(None)


def test_a_name_that_nobody_can_check_counts_for_nothing(door: Door) -> None:
    door.guard.use(Sources((), None, None, None))
    door.guard.admit(Credentials("c", "root", b"x"), door.outcomes.append, allow_anonymous=True)
    assert door.outcomes == [Identity(None)]
    door.knock("root", b"x")
    assert isinstance(door.outcomes[-1], Refusal)


def test_a_verified_certificate_is_proof_enough(door: Door) -> None:
    door.knock("root", b"wrong", certificate_name="device-7")
    assert door.outcomes == [Identity("device-7", "certificate")]


def test_nobody_comes_in_while_the_server_stops(door: Door) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    stopped = Door(executor)
    stopped.knock(password=b"right")
    assert stopped.outcomes == [Refusal("the server is stopping", Reason.SERVER_SHUTTING_DOWN)]
