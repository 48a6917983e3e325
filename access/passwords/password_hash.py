"""Password hashes: argon2id and SCRAM-SHA-256, and the two kinds that mosquitto writes. A hash is one line of printable
text with its parameters. Parameters are limited when the text is read: each login attempt costs the server what they
demand."""

import base64
import binascii
import hashlib
import hmac
from types import ModuleType
from typing import Protocol

from timestone_access.optional import load
from timestone_access.passwords.scram_hash import METHOD, ScramSha256

_ITERATIONS_MAX = 10_000_000
_SHA512_BYTES = 64


class BadHash(ValueError):
    """Text that is not a password hash of a known kind. Never quotes the text, which may be a password."""


class PasswordHash(Protocol):
    """Hash of a password."""

    @property
    def text(self) -> str:
        """Text of the hash in the file."""

    def verify(self, password: bytes) -> bool:
        """Return whether the password matches. Takes the time set by its parameters, for right and wrong passwords
        alike; thread-safe."""


class SaltedSha512:
    """mosquitto's `$6$<salt>$<hash>`: one round of SHA-512 over password and salt."""

    __slots__ = ("_digest", "_salt", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        salt, digest = _parts(text, 4)[2:]
        self._salt, self._digest = _base64(salt), _base64(digest, _SHA512_BYTES)

    def verify(self, password: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha512(password + self._salt).digest(), self._digest)


class Pbkdf2Sha512:
    """mosquitto's `$7$<iterations>$<salt>$<hash>`: PBKDF2 with HMAC-SHA-512."""

    __slots__ = ("_digest", "_iterations", "_salt", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        iterations, salt, digest = _parts(text, 5)[2:]
        if not iterations.isdecimal() or not 0 < int(iterations) <= _ITERATIONS_MAX:
            raise BadHash(f"invalid iterations: expected 1 to {_ITERATIONS_MAX}")
        self._iterations = int(iterations)
        self._salt, self._digest = _base64(salt), _base64(digest, _SHA512_BYTES)

    def verify(self, password: bytes) -> bool:
        digest = hashlib.pbkdf2_hmac("sha512", password, self._salt, self._iterations, _SHA512_BYTES)
        return hmac.compare_digest(digest, self._digest)


def parse_hash(text: str) -> PasswordHash:
    """Return the hash in `text`. Raises BadHash, and MissingExtra for argon2id without its library."""
    if text.startswith("$argon2id$"):
        parsed: PasswordHash = _argon2id().Argon2id(text)
        return parsed
    if text.startswith(METHOD):
        try:
            return ScramSha256(text)
        except ValueError as error:
            raise BadHash(str(error)) from None
    if text.startswith("$6$"):
        return SaltedSha512(text)
    if text.startswith("$7$"):
        return Pbkdf2Sha512(text)
    raise BadHash("expected a hash of argon2id, SCRAM-SHA-256, $7$ (PBKDF2) or $6$ (SHA-512)")


def hash_password(password: bytes) -> str:
    """Return a new argon2id hash with a random salt. Raises MissingExtra."""
    text: str = _argon2id().hash_argon2id(password)
    return text


def _argon2id() -> ModuleType:
    return load("timestone_access.passwords.argon2id", extra="security", what="a password with argon2id")


def _parts(text: str, count: int) -> list[str]:
    parts = text.split("$")
    if len(parts) != count:
        raise BadHash(f"invalid hash: expected {count - 1} parts, got {len(parts) - 1}")
    return parts


def _base64(text: str, size: int | None = None) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadHash("salt or hash is not base64") from None
    if not decoded or (size is not None and len(decoded) != size):
        raise BadHash("salt or hash has the wrong length")
    return decoded
