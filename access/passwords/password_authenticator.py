"""Authentication by user and password against the hashes of a password file."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from timestone_access.identity import Credentials, Identity, Refusal
from timestone_access.passwords.password_hash import PasswordHash
from timestone_access.passwords.scram import ScramExchange
from timestone_access.passwords.scram_decoys import ScramDecoys
from timestone_access.passwords.scram_hash import ScramSha256


class PasswordAuthenticator:
    """Users of one password file, as of its last reading.

    A correct password is cached as a keyed digest, in memory only: when ten thousand devices reconnect at once, each
    would otherwise cost the tens of milliseconds that make guessing expensive. A wrong password always costs them."""

    def __init__(self, hashes: Mapping[str, PasswordHash]) -> None:
        self._hashes = hashes
        self._key = secrets.token_bytes(32)
        self._proved: dict[str, bytes] = {}
        self._scram = {user: each for user, each in hashes.items() if isinstance(each, ScramSha256)}
        self._decoys = ScramDecoys(self._scram.values()) if self._scram else None

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        """Check a password. None for a user who is not in the file."""
        user, password = credentials.user, credentials.password
        known = self._hashes.get(user) if user is not None else None
        if user is None or known is None:
            return None
        if password is None:
            return Refusal(f"user {user!r} without a password")
        digest = hashlib.blake2b(password, key=self._key).digest()
        if not hmac.compare_digest(digest, self._proved.get(user, b"")):
            if not known.verify(password):
                return Refusal(f"wrong password for user {user!r}")
            self._proved[user] = digest
        return Identity(user, "password", proof=known.text)

    def scram_exchange(self) -> ScramExchange | None:
        """Return the server's side of a new SCRAM exchange; None if no user in the file has a SCRAM hash."""
        return None if self._decoys is None else ScramExchange(self._scram.get, self._decoys)

    def take_time(self, password: bytes | None) -> None:
        """Spend the time of a wrong password for an unknown user, so that the time of a refusal reveals no names."""
        some_hash = next(iter(self._hashes.values()), None)
        if some_hash is not None:
            some_hash.verify(password or b"")

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a client admitted with an earlier state of the file would be admitted with the same password
        now."""
        known = self._hashes.get(identity.user or "")
        return known is not None and known.text == identity.proof
