"""Keys of tokens, each for exactly one algorithm: a token never chooses how it is checked. Knows the files that keys
come in: PEM, secret bytes, JSON Web Key Sets (RFC 7517)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

_SECRET_BYTES_MIN = 32
"""Size of the hash of HS256 (RFC 7518, section 3.2): shorter secrets can be guessed."""
_RSA_BITS_MIN = 2048
_PEM = b"-----BEGIN "
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY_FILE_BYTES_MAX = 1024 * 1024
_PUBLIC_MEMBERS = ("kty", "crv", "x", "y", "n", "e", "k")
"""Members read from a key in a set. The private parts of a signing key are ignored."""
_CURVES = {"P-256": "ES256", "Ed25519": "EdDSA"}


class BadKey(ValueError):
    """Invalid key. The text names the file and never quotes it."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """Key with the one algorithm that it is for."""

    algorithm: str
    key: Any = field(repr=False)
    name: str
    """Digest of the key: identifies it without revealing it."""
    key_id: str | None = None


def read_key_file(path: Path) -> TokenKey:
    """Read a public key or certificate in PEM, or secret bytes, without a newline at the end. Raises OSError and
    BadKey."""
    content = _content(path)
    if not content.startswith(_PEM):
        return _secret(content.removesuffix(b"\n").removesuffix(b"\r"), str(path), None)
    if b"PRIVATE KEY" in content:
        raise BadKey(f"{path}: invalid key: expected a public key, got a private one")
    try:
        if content.startswith(_CERTIFICATE):
            key: Any = x509.load_pem_x509_certificate(content).public_key()
        else:
            key = load_pem_public_key(content)
    except ValueError:
        raise BadKey(f"{path}: not a public key or certificate in PEM") from None
    return TokenKey(_algorithm(key, str(path)), key, hashlib.sha256(content).hexdigest())


def read_key_set(path: Path) -> tuple[list[TokenKey], list[str]]:
    """Return the usable keys of a JSON Web Key Set, and the reasons why others are not. Raises OSError, and BadKey if
    there is none."""
    try:
        found = json.loads(_content(path))["keys"]
        listed = [dict(each) for each in found]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadKey(f"{path}: not a JSON Web Key Set") from None
    keys, remarks = [], []
    for number, each in enumerate(listed, 1):
        try:
            keys.append(_from_set(each, f"{path}: key {number}"))
        except BadKey as error:
            remarks.append(str(error))
    if not keys:
        raise BadKey(f"{path}: no usable key" + "".join(f"; {remark}" for remark in remarks))
    return keys, remarks


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if len(content) > _KEY_FILE_BYTES_MAX:
        raise BadKey(f"{path}: {len(content)} bytes are not a valid key")
    return content


def _from_set(entry: Mapping[str, Any], where: str) -> TokenKey:
    if entry.get("use", "sig") != "sig":
        raise BadKey(f"{where} is not for signatures")
    public = {name: entry[name] for name in _PUBLIC_MEMBERS if name in entry}
    algorithm = {"oct": "HS256", "RSA": "RS256"}.get(public.get("kty", "")) or _CURVES.get(
        public.get("crv", "")
    )
    if algorithm is None or entry.get("alg", algorithm) != algorithm:
        raise BadKey(f"{where}: invalid algorithm: expected HS256, RS256, ES256 or EdDSA")
    key_id = entry.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise BadKey(f"{where} has a key id that is not text")
    try:
        key = jwt.PyJWK(public, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise BadKey(f"{where} cannot be read") from None
    if algorithm == "HS256":
        return _secret(key, where, key_id)
    _algorithm(key, where)
    name = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()
    return TokenKey(algorithm, key, name, key_id)


def _secret(secret: bytes, where: str, key_id: str | None) -> TokenKey:
    if len(secret) < _SECRET_BYTES_MIN:
        raise BadKey(
            f"{where}: invalid secret: expected at least {_SECRET_BYTES_MIN} bytes for HS256, got {len(secret)}"
        )
    return TokenKey("HS256", secret, hashlib.sha256(b"secret" + secret).hexdigest(), key_id)


def _algorithm(key: Any, where: str) -> str:
    """Return the algorithm that a public key is for."""
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _RSA_BITS_MIN:
            raise BadKey(
                f"{where}: invalid RSA key: expected at least {_RSA_BITS_MIN} bits, got {key.key_size}"
            )
        return "RS256"
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return "ES256"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "EdDSA"
    raise BadKey(f"{where}: invalid key: expected one for RS256, ES256 or EdDSA")
