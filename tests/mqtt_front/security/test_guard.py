import base64
import functools
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from mqtt_front.security.guard import Guard
from mqtt_front.security.settings import SecuritySettings
from mqtt_front.security.sources import Sources
from tests.support.manual_loop import ManualLoop
from tests.support.waiting import TIMEOUT_S
from timestone_access import admission as module
from timestone_access.identity import Cause, Credentials, Identity, Refusal
from timestone_access.passwords.password_authenticator import PasswordAuthenticator
from timestone_access.passwords.password_file import read_password_file, set_password
from timestone_access.settings import LockoutSettings

LOG = logging.getLogger("timestone.mqtt")


class Known:
    """Accepts one password for every user; can be blocked."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        assert self.free.wait(TIMEOUT_S)
        if credentials.password == b"raise":
            raise RuntimeError("broken plug-in")
        return Identity(credentials.user) if credentials.password == b"right" else Refusal("wrong")


class Held(NamedTuple):
    """An authenticator that is held up."""

    free: threading.Event
    known: PasswordAuthenticator

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        assert self.free.wait(TIMEOUT_S)
        return self.known.authenticate(credentials)


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

    def has(self, count: int) -> bool:
        """Are so many logins decided?"""
        return len(self.outcomes) == count

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


def test_login_is_checked_in_a_thread_and_decided_in_the_loop(door: Door) -> None:
    door.known.free.clear()
    door.knock(password=b"right")
    door.loop.settle()
    assert door.outcomes == []
    door.known.free.set()
    door.loop.run_until(lambda: bool(door.outcomes))
    assert door.outcomes == [Identity("u")]


def test_wrong_passwords_lock_out_even_the_right_one(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert door.login(b"wrong") == Refusal("wrong")
    assert "too many failed logins of user 'u' from 192.0.2.1" in caplog.text
    answer = door.login(b"right")
    assert isinstance(answer, Refusal) and answer.cause is Cause.LOCKED_OUT
    assert (door.guard.counts.refused, door.guard.counts.locked_out) == (4, 1)


def test_waiting_passwords_are_not_checked_after_a_lockout(door: Door) -> None:
    door.known.free.clear()
    for _ in range(50):
        door.knock(password=b"wrong")
    door.knock(password=b"right")
    door.known.free.set()
    door.loop.run_until(lambda: len(door.outcomes) == 51)
    tried = door.outcomes.count(Refusal("wrong"))
    assert tried in (3, 4), "two threads: one guess may have been under way in the other"
    assert door.guard.counts.locked_out == 51 - tried, "the right one as well"


def test_login_revoked_during_its_check_is_refused(door: Door, tmp_path: Path) -> None:
    def passwords(password: bytes) -> Sources:
        file = tmp_path / "passwords"
        set_password(file, "u", password, scram=True)
        known = PasswordAuthenticator(read_password_file(file))
        return Sources((Held(door.known.free, known),), known, None, None)

    door.guard.use(passwords(b"old"))
    door.known.free.clear()
    door.knock(password=b"old")
    door.guard.use(passwords(b"new"))
    door.known.free.set()
    door.loop.run_until(lambda: bool(door.outcomes))
    outcome = door.outcomes[0]
    assert isinstance(outcome, Refusal) and outcome.cause is Cause.NOT_AUTHORIZED
    assert "taken back" in outcome.message
    door.knock(password=b"new")
    door.loop.run_until(lambda: len(door.outcomes) == 2)
    assert isinstance(door.outcomes[1], Identity)


def test_waiting_scram_proofs_are_not_checked_after_a_lockout(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    set_password(file, "u", b"x", scram=True)
    passwords = PasswordAuthenticator(read_password_file(file))
    door.guard.use(Sources((passwords,), passwords, None, None))
    exchanges = []
    for _ in range(5):
        exchange = door.guard.scram_exchange()
        assert exchange is not None
        first = door.guard.scram_first(exchange, b"n,,n=u,r=nonce", "192.0.2.1")
        assert isinstance(first, bytes)
        exchanges.append((exchange, first.partition(b",")[0]))
    proof = base64.b64encode(bytes(32))
    reasons = []
    for exchange, nonce in exchanges:
        answer = door.guard.scram_final(exchange, b"c=biws," + nonce + b",p=" + proof, "192.0.2.1")
        assert isinstance(answer, Refusal)
        reasons.append(answer.cause)
    assert reasons == [Cause.NOT_AUTHORIZED] * 3 + [Cause.LOCKED_OUT] * 2


def test_raising_plug_in_refuses_the_login_without_a_lockout(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        answer = door.login(b"raise")
        assert isinstance(answer, Refusal) and answer.cause is Cause.UNAVAILABLE
    assert "broken plug-in" in caplog.text
    assert door.login(b"right") == Identity("u")


def test_logins_over_the_limit_of_checks_are_refused_as_busy(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 5)
    door.known.free.clear()
    for _ in range(7):
        door.knock(password=b"right")
    assert [each.cause for each in door.outcomes if isinstance(each, Refusal)] == [Cause.BUSY] * 2
    door.known.free.set()
    door.loop.run_until(lambda: len(door.outcomes) == 7)
    assert door.login(b"right") == Identity("u")


def test_login_whose_callback_raises_frees_its_place(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(outcome: Identity | Refusal) -> None:
        door.outcomes.append(outcome)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(module, "WAITING_MAX", 3)
    for count in (3, 6):
        door.known.free.clear()
        for decided in (fail, fail, door.outcomes.append):
            door.guard.admit(Credentials("c", "u", b"right"), decided, allow_anonymous=False)
        door.known.free.set()
        door.loop.run_until(functools.partial(door.has, count))
    assert door.outcomes == [Identity("u")] * 6
    assert "a fault of ours" in caplog.text


def test_anonymous_client_is_accepted_where_allowed(door: Door) -> None:
    door.knock(None)
    assert door.outcomes == [Refusal("no user name given", Cause.NOT_AUTHORIZED)]
    door.guard.admit(Credentials("c"), door.outcomes.append, allow_anonymous=True)
    assert door.outcomes[-1] == Identity(None)


def test_user_name_without_an_authenticator_is_ignored(door: Door) -> None:
    door.guard.use(Sources((), None, None, None))
    door.guard.admit(Credentials("c", "root", b"x"), door.outcomes.append, allow_anonymous=True)
    assert door.outcomes == [Identity(None)]
    door.knock("root", b"x")
    assert isinstance(door.outcomes[-1], Refusal)


def test_verified_certificate_needs_no_password(door: Door) -> None:
    door.knock("root", b"wrong", certificate_name="device-7")
    assert door.outcomes == [Identity("device-7", "certificate")]


def test_logins_are_refused_while_the_server_stops(door: Door) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    stopped = Door(executor)
    stopped.knock(password=b"right")
    assert stopped.outcomes == [Refusal("the server is stopping", Cause.STOPPING)]
