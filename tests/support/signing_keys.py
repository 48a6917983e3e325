"""Keys that sign tokens, made for one run, and tokens and key files made with them."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET = b"0123456789abcdef0123456789abcdef-and-more"
PRIVATE: dict[str, Any] = {
    "HS256": SECRET,
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def public_pem(algorithm: str) -> bytes:
    """Return the public half in PEM; the secret itself for HS256."""
    if algorithm == "HS256":
        return SECRET
    pem: bytes = PRIVATE[algorithm].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def jwk(algorithm: str, **members: Any) -> dict[str, Any]:
    """Return one entry of a JSON Web Key Set."""
    if algorithm == "HS256":
        entry = {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()}
    else:
        kinds = {"RS256": "RSAAlgorithm", "ES256": "ECAlgorithm", "EdDSA": "OKPAlgorithm"}
        entry = json.loads(getattr(jwt.algorithms, kinds[algorithm]).to_jwk(PRIVATE[algorithm].public_key()))
        entry.pop("key_ops", None)
    return entry | members


def write_key_set(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": entries}))
    return path


def token(algorithm: str, *, key_id: str | None = None, **claims: Any) -> bytes:
    """Return a signed token, valid for a minute unless `exp` is given (None: no `exp` at all)."""
    claims = {"sub": "alice", "exp": int(time.time()) + 60} | claims
    present = {name: value for name, value in claims.items() if value is not None}
    headers = {"kid": key_id} if key_id is not None else None
    return jwt.encode(present, PRIVATE[algorithm], algorithm, headers).encode()
