"""Passwords as hashes: our own kinds, argon2id and SCRAM-SHA-256, and the two kinds that mosquitto writes.

A hash is one line of printable text with its parameters inside. Parameters are checked when the text is read: whoever
tries to log in makes the server spend what they say.
"""

import base64
import binascii
import hashlib
import hmac
from types import ModuleType
from typing import Protocol

from mqtt_front.runtime.optional import load
from mqtt_front.security.scram_hash import METHOD, ScramSha256

_ITERATIONS_MAX = 10_000_000
_SHA512_BYTES = 64


class BadHash(ValueError):
    """Text that is no password hash of a known kind. It never quotes the text: that may be a password."""


class PasswordHash(Protocol):
    """What is kept of a password."""

    @property
    def text(self) -> str:
        """As it stands in the file."""

    def verify(self, password: bytes) -> bool:
        """Is it this password? Takes as long as its parameters say, for right and wrong ones alike; thread-safe."""


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
            raise BadHash(f"iterations go from 1 to {_ITERATIONS_MAX}")
        self._iterations = int(iterations)
        self._salt, self._digest = _base64(salt), _base64(digest, _SHA512_BYTES)

    def verify(self, password: bytes) -> bool:
        digest = hashlib.pbkdf2_hmac("sha512", password, self._salt, self._iterations, _SHA512_BYTES)
        return hmac.compare_digest(digest, self._digest)


def parse_hash(text: str) -> PasswordHash:
    """The hash in `text`. Raises BadHash, and MissingExtra for argon2id without its library."""
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
    raise BadHash("it is none of argon2id, SCRAM-SHA-256, $7$ (PBKDF2) and $6$ (SHA-512)")


def hash_password(password: bytes) -> str:
    """A new argon2id hash with a salt of its own. Raises MissingExtra."""
    text: str = _argon2id().hash_argon2id(password)
    return text


def _argon2id() -> ModuleType:
    return load("mqtt_front.security.argon2id", extra="security", what="a password with argon2id")


def _parts(text: str, count: int) -> list[str]:
    parts = text.split("$")
    if len(parts) != count:
        raise BadHash(f"a hash of this kind has {count - 1} parts, not {len(parts) - 1}")
    return parts


def _base64(text: str, size: int | None = None) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadHash("salt or hash is not base64") from None
    if not decoded or (size is not None and len(decoded) != size):
        raise BadHash("salt or hash has the wrong length")
    return decoded
