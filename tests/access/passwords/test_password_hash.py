import base64
import hashlib

import pytest

from timestone_access.optional import MissingExtra
from timestone_access.passwords import password_hash
from timestone_access.passwords.password_hash import BadHash, hash_password, parse_hash

BY_MOSQUITTO = {
    "sha512": (
        "$6$fTc0DAzVtiOYCdtE$u3AiqKa7QngzN/CSrhyvVd+kmaqYD3PyF8GjxD3+"
        "2Z9IEdlujuWX8WsJ9nF7jhKFFVGMfIbdEMKrnzUkf+MenA=="
    ),
    "pbkdf2": (
        "$7$101$sKoGy3hML+IZqqYM$bwT4Kaa73mvYTNY6I3AKOcjmqAda1fYIwXup"
        "ocx4aj5zn4h6Q/ZvbrqmkQn2yYb9788sE0rOLNUcaOr9Ff+WxA=="
    ),
}
"""Written by mosquitto_passwd 2.0.11 for the passwords below."""
PASSWORDS = {"sha512": b"geheim", "pbkdf2": b"secret"}


@pytest.mark.parametrize("kind", BY_MOSQUITTO)
def test_mosquitto_hash_matches_only_its_password(kind: str) -> None:
    parsed = parse_hash(BY_MOSQUITTO[kind])
    assert parsed.verify(PASSWORDS[kind])
    for wrong in (b"", PASSWORDS[kind] + b" ", PASSWORDS[kind][:-1], PASSWORDS[kind].upper()):
        assert not parsed.verify(wrong)


@pytest.mark.parametrize("password", [b"", b"a", "pässwörd".encode(), b"\x00\xff" * 30, b"x" * 65_535])
def test_new_hash_is_argon2id_and_matches_its_password(password: bytes) -> None:
    text = hash_password(password)
    assert text.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert parse_hash(text).verify(password)
    assert not parse_hash(text).verify(password + b"x")


def test_two_hashes_of_one_password_differ() -> None:
    assert hash_password(b"same") != hash_password(b"same")


SALT, DIGEST = base64.b64encode(b"salt").decode(), base64.b64encode(hashlib.sha512().digest()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "$5$salt$hash",
        "$argon2i$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$",
        "$argon2id$v=19$m=16,t=2,p=1",
        "$argon2id$v=19$m=2000000,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=16,t=1000,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=16,t=0,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=16,t=2,p=99$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        f"$6${SALT}",
        f"$6${SALT}${DIGEST}$",
        f"$6$${DIGEST}",
        f"$6${SALT}${SALT}",
        f"$6$s!lt${DIGEST}",
        f"$7${SALT}${DIGEST}",
        f"$7$0${SALT}${DIGEST}",
        f"$7$-1${SALT}${DIGEST}",
        f"$7$999999999${SALT}${DIGEST}",
        f"$7$x${SALT}${DIGEST}",
    ],
)
def test_invalid_hash_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(BadHash) as error:
        parse_hash(text)
    assert len(text) < 3 or text not in str(error.value)


def test_missing_library_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'argon2'", name="argon2")

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(
        MissingExtra, match=r"needs the library 'argon2': pip install '.\[security\]' in a clone"
    ):
        password_hash.hash_password(b"secret")
    assert parse_hash(BY_MOSQUITTO["pbkdf2"]).verify(b"secret")
