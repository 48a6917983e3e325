import logging

from timestone_access.admission import WAITING_MAX, Admission, AdmissionCounts
from timestone_access.identity import Cause, Credentials, Identity, Refusal
from timestone_access.logins import Logins
from timestone_access.settings import LockoutSettings

LOG = logging.getLogger("timestone.access")


class Known:
    """Authenticator that knows one password."""

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        if credentials.password == b"broken":
            raise OSError("the service does not answer")
        return Identity(credentials.user) if credentials.password == b"right" else Refusal("wrong")


def admission(*, failures: int = 2) -> Admission[Logins]:
    return Admission(Logins((Known(),), None, None), LockoutSettings(failures=failures), LOG)


def login(password: bytes) -> Credentials:
    return Credentials(user="alice", password=password, address="192.0.2.1")


def test_anonymous_client_is_admitted_only_where_it_is_allowed() -> None:
    door = admission()
    assert door.at_once(Credentials(), allow_anonymous=True, waiting=0) == Identity(None)
    refusal = door.at_once(Credentials(), allow_anonymous=False, waiting=0)
    assert refusal == Refusal("no user name given", Cause.NOT_AUTHORIZED)


def test_certificate_name_is_the_user_without_a_check() -> None:
    identity = admission().at_once(Credentials(certificate_name="dev"), allow_anonymous=False, waiting=0)
    assert identity == Identity("dev", "certificate")


def test_password_is_left_to_check_until_too_many_wait() -> None:
    door = admission()
    assert door.at_once(login(b"right"), allow_anonymous=False, waiting=0) is None
    refusal = door.at_once(login(b"right"), allow_anonymous=False, waiting=WAITING_MAX)
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.BUSY
    assert door.check(login(b"right")) == Identity("alice")


def test_user_is_locked_out_after_failures_and_counted() -> None:
    door, counts = admission(), AdmissionCounts()
    for _ in range(2):
        counts.add(door.check(login(b"wrong")))
    locked = door.check(login(b"right"))
    counts.add(locked)
    assert isinstance(locked, Refusal) and locked.cause is Cause.LOCKED_OUT
    assert (counts.refused, counts.locked_out) == (3, 1)


def test_failing_authenticator_refuses_and_does_not_count_towards_the_lockout() -> None:
    door = admission(failures=1)
    refusal = door.check(login(b"broken"))
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.UNAVAILABLE
    assert door.check(login(b"right")) == Identity("alice")


def test_login_is_refused_when_a_reload_took_it_back_meantime() -> None:
    door = admission()
    proven = Identity("alice", "password", proof="hash")
    refusal = door.in_force(proven)
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.NOT_AUTHORIZED
