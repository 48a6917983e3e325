import base64

import pytest

from timestone_access.passwords.password_hash import BadHash, parse_hash
from timestone_access.passwords.scram_hash import ITERATIONS, ScramSha256, hash_scram


@pytest.mark.parametrize("password", [b"pencil", "pässwörd".encode(), b"\xff\x00", b"x" * 1000])
def test_hash_matches_only_its_password(password: bytes) -> None:
    record = ScramSha256(hash_scram(password))
    assert record.iterations == ITERATIONS
    assert record.verify(password)
    assert not record.verify(password + b"x")
    assert hash_scram(password) != hash_scram(password), "each has a salt of its own"


def test_unicode_forms_of_a_password_are_equal() -> None:
    assert ScramSha256(hash_scram("ä".encode())).verify("a\u0308".encode())


def test_scram_hash_is_accepted_as_a_password_hash() -> None:
    assert parse_hash(hash_scram(b"pencil")).verify(b"pencil")


KEY = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256",
        f"SCRAM-SHA-256$4095:AAAA${KEY}:{KEY}",
        f"SCRAM-SHA-256$99999999:AAAA${KEY}:{KEY}",
        f"SCRAM-SHA-256$4096:AAA${KEY}:{KEY}",
        f"SCRAM-SHA-256$4096:AAAA$AAAA:{KEY}",
        f"SCRAM-SHA-256$4096:AAAA${KEY}",
        f"SCRAM-SHA-256$x:AAAA${KEY}:{KEY}",
        f"SCRAM-SHA-1$4096:AAAA${KEY}:{KEY}",
    ],
)
def test_invalid_hash_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(BadHash) as error:
        parse_hash(text)
    assert KEY not in str(error.value)
