"""Hash of a password for SCRAM-SHA-256 (RFC 5802, RFC 7677): enough to check a proof, too little to make one. The text
is that of RFC 5803: `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import unicodedata

METHOD = "SCRAM-SHA-256"
ITERATIONS = 10_000
"""More than the 4,096 of RFC 7677, few enough for a small device: the client computes them."""
_ITERATIONS_MIN, _ITERATIONS_MAX = 4096, 10_000_000
_SALT_BYTES = 16
_DIGEST_BYTES = 32
_TEXT = re.compile(r"SCRAM-SHA-256\$(\d{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


class ScramSha256:
    """Hash of one user's password. Also checks the password itself, for clients that send it."""

    __slots__ = ("iterations", "salt", "server_key", "stored_key", "text")

    def __init__(self, text: str) -> None:
        """Raises ValueError, which does not quote the text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError("malformed SCRAM-SHA-256 hash")
        self.text = text
        self.iterations = int(found[1])
        if not _ITERATIONS_MIN <= self.iterations <= _ITERATIONS_MAX:
            raise ValueError(f"invalid iterations: expected {_ITERATIONS_MIN} to {_ITERATIONS_MAX}")
        try:
            self.salt, self.stored_key, self.server_key = (
                base64.b64decode(each, validate=True) for each in found.groups()[1:]
            )
        except binascii.Error:
            raise ValueError("salt or key is not valid base64") from None
        if len(self.stored_key) != _DIGEST_BYTES or len(self.server_key) != _DIGEST_BYTES or not self.salt:
            raise ValueError("salt or key has the wrong length")

    def verify(self, password: bytes) -> bool:
        client_key, _ = _keys(password, self.salt, self.iterations)
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), self.stored_key)


def hash_scram(password: bytes, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> str:
    """Return the hash of a password, with a random salt unless one is given."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    client_key, server_key = _keys(password, salt, iterations)
    stored_key = hashlib.sha256(client_key).digest()
    parts = [base64.b64encode(each).decode() for each in (salt, stored_key, server_key)]
    return f"{METHOD}${iterations}:{parts[0]}${parts[1]}:{parts[2]}"


def _keys(password: bytes, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    try:
        # The result of SASLprep for nearly every password; invalid UTF-8 stays as it is.
        password = unicodedata.normalize("NFKC", password.decode()).encode()
    except UnicodeDecodeError:
        pass
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    return hmac.digest(salted, b"Client Key", "sha256"), hmac.digest(salted, b"Server Key", "sha256")
