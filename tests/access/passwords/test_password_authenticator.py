import pytest

from timestone_access.identity import Credentials, Identity, Refusal
from timestone_access.passwords.password_authenticator import PasswordAuthenticator


class Counting:
    """A hash that counts its verifications."""

    def __init__(self, password: bytes, text: str = "text") -> None:
        self.password = password
        self.text = text
        self.count = 0

    def verify(self, password: bytes) -> bool:
        self.count += 1
        return password == self.password


ALICE = Identity("alice", "password", proof="text")


def login(user: str | None, password: bytes | None) -> Credentials:
    return Credentials("c", user, password, "192.0.2.1")


def test_authenticate_returns_an_identity_or_a_refusal() -> None:
    authenticator = PasswordAuthenticator({"alice": Counting(b"secret")})
    assert authenticator.authenticate(login("alice", b"secret")) == ALICE
    for wrong in (b"", b"secret ", b"Secret"):
        answer = authenticator.authenticate(login("alice", wrong))
        assert isinstance(answer, Refusal)
        assert answer.message == "wrong password for user 'alice'"
    assert authenticator.authenticate(login("alice", None)) == Refusal("user 'alice' without a password")


@pytest.mark.parametrize("user", ["bob", "", None])
def test_unknown_user_is_left_to_other_authenticators(user: str | None) -> None:
    assert PasswordAuthenticator({"alice": Counting(b"x")}).authenticate(login(user, b"x")) is None


def test_right_password_is_hashed_once_and_a_wrong_one_each_time() -> None:
    known = Counting(b"secret")
    authenticator = PasswordAuthenticator({"alice": known})
    for _ in range(5):
        assert authenticator.authenticate(login("alice", b"secret")) == ALICE
    assert known.count == 1
    for _ in range(5):
        assert isinstance(authenticator.authenticate(login("alice", b"wrong")), Refusal)
    assert known.count == 6
    assert authenticator.authenticate(login("alice", b"secret")) == ALICE
    assert known.count == 6


def test_cached_password_is_valid_only_for_its_user() -> None:
    authenticator = PasswordAuthenticator({"alice": Counting(b"secret"), "bob": Counting(b"other")})
    authenticator.authenticate(login("alice", b"secret"))
    assert isinstance(authenticator.authenticate(login("bob", b"secret")), Refusal)


def test_unknown_user_takes_as_long_as_a_wrong_password() -> None:
    known = Counting(b"secret")
    PasswordAuthenticator({"alice": known}).take_time(None)
    assert known.count == 1
    PasswordAuthenticator({}).take_time(b"x")


def test_identity_is_valid_while_its_line_is_unchanged() -> None:
    identity = PasswordAuthenticator({"alice": Counting(b"secret", "1")}).authenticate(
        login("alice", b"secret")
    )
    assert isinstance(identity, Identity)
    assert PasswordAuthenticator({"alice": Counting(b"secret", "1")}).still_holds(identity)
    assert not PasswordAuthenticator({"alice": Counting(b"secret", "2")}).still_holds(identity)
    assert not PasswordAuthenticator({}).still_holds(identity)
