"""Server side of one SCRAM-SHA-256 exchange (RFC 5802): two messages in, two out, none of which contains a secret. The
password never crosses the network, a recorded exchange cannot be replayed, and at the end the client knows that the
server has its keys. Channel binding is not offered."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

from timestone_access.passwords.scram_decoys import ScramDecoys
from timestone_access.passwords.scram_hash import ScramSha256

_MESSAGE_BYTES_MAX = 4096
_NONCE_BYTES = 18
_FIRST = re.compile(
    r"(?P<gs2>(?P<binding>n|y|p=[^,]*),(?:a=(?P<other>[^,]*))?,)n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?"
)
_FINAL = re.compile(r"(?P<bare>c=(?P<gs2>[^,]*),r=(?P<nonce>[!-+\--~]+)(?:,[^p][^,]*)*),p=(?P<proof>[^,]*)")


class ScramRefused(Exception):
    """The exchange has failed. The text is for the log and contains no secret."""


class ScramExchange:
    """SCRAM exchange. `user` is the claimed user, once `first` has returned."""

    def __init__(
        self,
        find: Callable[[str], ScramSha256 | None],
        decoys: ScramDecoys,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        """find: looks up users. decoys: for unknown users."""
        self._find = find
        self._decoys = decoys
        self._make_nonce = nonce
        self._record: ScramSha256 | None = None
        self._gs2 = self._nonce = self._spoken = ""
        self.user = ""

    def first(self, message: bytes) -> bytes:
        """Return the server's first message in answer to the client's. Raises ScramRefused."""
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise ScramRefused("invalid first SCRAM message")
        if found["binding"].startswith("p"):
            raise ScramRefused("channel binding is not supported")
        self.user = _decoded_name(found["user"])
        if found["other"] and _decoded_name(found["other"]) != self.user:
            raise ScramRefused(f"user {self.user!r} asks to act for another user")
        self._gs2, self._nonce = found["gs2"], found["nonce"] + self._make_nonce()
        self._record = self._find(self.user)
        if self._record is None:
            salt, iterations = self._decoys.of(self.user)
        else:
            salt, iterations = self._record.salt, self._record.iterations
        answer = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self._spoken = f"{_text(message)[len(self._gs2) :]},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> tuple[ScramSha256, bytes]:
        """Return the record of the user who has proved to know the password, and the server's last message. Raises
        ScramRefused."""
        found = _FINAL.fullmatch(_text(message))
        if found is None or _base64(found["gs2"]) != self._gs2.encode() or found["nonce"] != self._nonce:
            raise ScramRefused("final SCRAM message of another exchange")
        record, proof = self._record, _base64(found["proof"])
        if record is None:
            raise ScramRefused(f"unknown user {self.user!r}")
        spoken = f"{self._spoken},{found['bare']}".encode()
        signature = hmac.digest(record.stored_key, spoken, "sha256")
        if len(proof) != len(signature):
            raise ScramRefused("SCRAM proof has the wrong length")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), record.stored_key):
            raise ScramRefused(f"wrong proof for user {self.user!r}")
        verifier = hmac.digest(record.server_key, spoken, "sha256")
        return record, b"v=" + base64.b64encode(verifier)


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise ScramRefused(f"a message of {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramRefused("SCRAM message is not valid UTF-8") from None


def _decoded_name(name: str) -> str:
    """Return a name in which comma and equals sign are escaped as =2C and =3D."""
    if re.search("=(?!2C|3D)", name):
        raise ScramRefused("invalid '=' in a SCRAM user name")
    return name.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramRefused("SCRAM message is not valid base64") from None
