import pytest

from mqtt_front.security.argon2id import Argon2id, hash_argon2id
from mqtt_front.security.password_hash import BadHash

# The reference implementation's own test vector for argon2id (version 19, 2 passes, 64 MiB, one lane).
REFERENCE = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"


def test_the_vector_of_the_reference_implementation_holds() -> None:
    assert Argon2id(REFERENCE).verify(b"password")
    assert not Argon2id(REFERENCE).verify(b"differentpassword")


def test_a_hash_of_ours_reads_back() -> None:
    assert Argon2id(hash_argon2id(b"secret")).verify(b"secret")


def test_the_other_kinds_of_argon2_are_refused() -> None:
    with pytest.raises(BadHash):
        Argon2id(REFERENCE.replace("argon2id", "argon2d"))
