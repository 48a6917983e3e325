"""What SCRAM tells a client of a user who does not exist: else the first answer would say who does."""

import hashlib
from collections.abc import Collection

from mqtt_front.security.scram_hash import ScramSha256

_PLACE_BYTES = 8


class ScramDecoys:
    """Salts and iterations like those of the users of a password file; those of a name stay what they are."""

    def __init__(self, records: Collection[ScramSha256]) -> None:
        """Of one user at least."""
        # From the file, so that they are the same after a restart, as those of real users are.
        self._key = next(iter(records)).server_key
        # In order, so that with a user more or less hardly any name gets others.
        self._forms = sorted((each.iterations, len(each.salt)) for each in records)

    def of(self, user: str) -> tuple[bytes, int]:
        """A salt and a number of iterations: each number for as large a share of names as of users."""
        random = hashlib.shake_256(self._key + user.encode())
        share = int.from_bytes(random.digest(_PLACE_BYTES), "big")
        iterations, salt_bytes = self._forms[share * len(self._forms) >> 8 * _PLACE_BYTES]
        return random.digest(_PLACE_BYTES + salt_bytes)[_PLACE_BYTES:], iterations
