"""The client's side of SCRAM-SHA-256, written from RFC 5802 and independent of the server's code."""

import base64
import hashlib
import hmac


class ScramClient:
    """One exchange; a test may change any part of it."""

    def __init__(
        self, user: str, password: str, nonce: str = "rOprNGfwEbeRWgbNEkqO", gs2: str = "n,,"
    ) -> None:
        self.password = password
        self.gs2 = gs2
        self.bare = f"n={user},r={nonce}"
        self.signature = b""

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", self.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c={base64.b64encode(self.gs2.encode()).decode()},r={fields['r']}"
        message = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        stored_key = hashlib.sha256(client_key).digest()
        pad = hmac.digest(stored_key, message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, pad, strict=True))
        self.signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), message, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def trusts(self, server_final: bytes) -> bool:
        return server_final == b"v=" + base64.b64encode(self.signature)
