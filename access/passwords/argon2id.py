"""argon2id hashes; the only module that imports the library for them."""

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type, verify_secret

from timestone_access.passwords.password_hash import BadHash

# The minimum that OWASP recommends (2 passes over 19 MiB, one lane): a fleet of devices that reconnects must not wait
# longer, and the passwords of devices are generated.
_PASSES, _MEMORY_KIB, _LANES = 2, 19_456, 1
_PASSES_MAX, _MEMORY_KIB_MAX, _LANES_MAX = 100, 1_048_576, 16


class Argon2id:
    """`$argon2id$v=19$m=…,t=…,p=…$<salt>$<hash>`: slow and memory-hard on purpose."""

    __slots__ = ("_encoded", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            found = extract_parameters(text)
        except (InvalidHashError, ValueError):
            raise BadHash("malformed argon2id hash") from None
        if (
            found.type is not Type.ID
            or not 0 < found.time_cost <= _PASSES_MAX
            or not 0 < found.memory_cost <= _MEMORY_KIB_MAX
            or not 0 < found.parallelism <= _LANES_MAX
        ):
            raise BadHash(
                f"invalid argon2id parameters: expected at most {_MEMORY_KIB_MAX} KiB, {_PASSES_MAX} passes and "
                f"{_LANES_MAX} lanes"
            )
        self._encoded = text.encode("ascii")

    def verify(self, password: bytes) -> bool:
        try:
            return verify_secret(self._encoded, password, Type.ID)
        except VerificationError:
            return False


def hash_argon2id(password: bytes) -> str:
    """Return a new hash with a random salt."""
    return PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=_LANES).hash(password)
