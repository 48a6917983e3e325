"""Answers of SCRAM for unknown users: without them, the first answer would reveal which users exist."""

import hashlib
from collections.abc import Collection

from timestone_access.passwords.scram_hash import ScramSha256

_PLACE_BYTES = 8


class ScramDecoys:
    """Salts and iterations like those of the users of a password file, constant for each name."""

    def __init__(self, records: Collection[ScramSha256]) -> None:
        """records: of at least one user."""
        # Derived from the file, so that they are the same after a restart, like those of real users.
        self._key = next(iter(records)).server_key
        # Sorted, so that adding or removing a user changes the answers for few names.
        self._forms = sorted((each.iterations, len(each.salt)) for each in records)

    def of(self, user: str) -> tuple[bytes, int]:
        """Return a salt and a number of iterations, with the distribution of the real users."""
        random = hashlib.shake_256(self._key + user.encode())
        share = int.from_bytes(random.digest(_PLACE_BYTES), "big")
        iterations, salt_bytes = self._forms[share * len(self._forms) >> 8 * _PLACE_BYTES]
        return random.digest(_PLACE_BYTES + salt_bytes)[_PLACE_BYTES:], iterations
