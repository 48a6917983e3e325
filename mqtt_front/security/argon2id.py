"""argon2id, the one home of the library that computes it."""

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type, verify_secret

from mqtt_front.security.password_hash import BadHash

# The least that OWASP recommends (2 passes over 19 MiB, one lane): a device fleet that reconnects has to get through
# this, and the passwords of devices are made by machines.
_PASSES, _MEMORY_KIB, _LANES = 2, 19_456, 1
_PASSES_MAX, _MEMORY_KIB_MAX, _LANES_MAX = 100, 1_048_576, 16


class Argon2id:
    """`$argon2id$v=19$m=…,t=…,p=…$<salt>$<hash>`: slow and hungry for memory on purpose."""

    __slots__ = ("_encoded", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            found = extract_parameters(text)
        except (InvalidHashError, ValueError):
            raise BadHash("it begins like argon2id and does not continue like it") from None
        if (
            found.type is not Type.ID
            or not 0 < found.time_cost <= _PASSES_MAX
            or not 0 < found.memory_cost <= _MEMORY_KIB_MAX
            or not 0 < found.parallelism <= _LANES_MAX
        ):
            raise BadHash(
                f"argon2id takes at most {_MEMORY_KIB_MAX} KiB, {_PASSES_MAX} passes and {_LANES_MAX} lanes here"
            )
        self._encoded = text.encode("ascii")

    def verify(self, password: bytes) -> bool:
        try:
            return verify_secret(self._encoded, password, Type.ID)
        except VerificationError:
            return False


def hash_argon2id(password: bytes) -> str:
    """A new hash with a random salt."""
    return PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=_LANES).hash(password)
