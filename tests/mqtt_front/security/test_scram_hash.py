import base64

import pytest

from mqtt_front.security.password_hash import BadHash, parse_hash
from mqtt_front.security.scram_hash import ITERATIONS, ScramSha256, hash_scram


@pytest.mark.parametrize("password", [b"pencil", "pässwörd".encode(), b"\xff\x00", b"x" * 1000])
def test_a_password_proves_itself_and_no_other_does(password: bytes) -> None:
    record = ScramSha256(hash_scram(password))
    assert record.iterations == ITERATIONS
    assert record.verify(password)
    assert not record.verify(password + b"x")
    assert hash_scram(password) != hash_scram(password), "each has a salt of its own"


def test_two_ways_to_write_a_letter_are_one_password() -> None:
    assert ScramSha256(hash_scram("ä".encode())).verify("a\u0308".encode())


def test_it_is_a_hash_like_the_others() -> None:
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
def test_other_text_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(BadHash) as error:
        parse_hash(text)
    assert KEY not in str(error.value)
