import pytest

from timestone_access.passwords.argon2id import Argon2id, hash_argon2id
from timestone_access.passwords.password_hash import BadHash

# The reference implementation's own test vector for argon2id (version 19, 2 passes, 64 MiB, one lane).
REFERENCE = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"


@pytest.mark.slow
def test_hash_agrees_with_the_reference_implementation() -> None:
    assert Argon2id(REFERENCE).verify(b"password")
    assert not Argon2id(REFERENCE).verify(b"differentpassword")


def test_own_hash_is_parsed() -> None:
    assert Argon2id(hash_argon2id(b"secret")).verify(b"secret")


def test_other_variants_of_argon2_are_refused() -> None:
    with pytest.raises(BadHash):
        Argon2id(REFERENCE.replace("argon2id", "argon2d"))
