import json
import re
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.support.signing_keys import PRIVATE, SECRET, jwk, public_pem, write_key_set
from timestone_access.token_key import BadKey, read_key_file, read_key_set

ALGORITHMS = list(PRIVATE)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_key_file_determines_the_algorithm(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(public_pem(algorithm))
    key = read_key_file(path)
    assert (key.algorithm, key.key_id) == (algorithm, None)
    assert SECRET.decode() not in repr(key)


def test_trailing_newline_is_not_part_of_a_secret(tmp_path: Path) -> None:
    for end in (b"", b"\n", b"\r\n"):
        (tmp_path / "key").write_bytes(SECRET + end)
        assert read_key_file(tmp_path / "key").key == SECRET


def pem(private: object) -> bytes:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined, no-any-return]


BAD_FILES = {
    "private": (
        PRIVATE["ES256"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "got a private one",
    ),
    "short secret": (b"x" * 31, "at least 32 bytes for HS256, got 31"),
    "small RSA": (pem(rsa.generate_private_key(65537, 1024)), "at least 2048 bits, got 1024"),
    "other curve": (pem(ec.generate_private_key(ec.SECP384R1())), "expected one for RS256"),
    "other kind": (pem(ed448.Ed448PrivateKey.generate()), "expected one for RS256"),
    "broken": (b"-----BEGIN PUBLIC KEY-----\nxxxx\n-----END PUBLIC KEY-----\n", "not a public key"),
    "broken certificate": (b"-----BEGIN CERTIFICATE-----\nxxxx\n-----END CERTIFICATE-----\n", "not a public"),
    "huge": (b"x" * 2_000_000, "are not a valid key"),
}


@pytest.mark.parametrize(("content", "complaint"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_unusable_key_file_is_reported_by_name_and_not_quoted(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(BadKey, match=complaint) as error:
        read_key_file(path)
    assert str(path) in str(error.value)
    assert "xxxx" not in str(error.value)


def test_key_set_has_each_key_with_its_id(tmp_path: Path) -> None:
    entries = [jwk(algorithm, kid=algorithm.lower(), use="sig") for algorithm in ALGORITHMS]
    keys, remarks = read_key_set(write_key_set(tmp_path / "jwks", *entries))
    assert [(key.key_id, key.algorithm) for key in keys] == [(each.lower(), each) for each in ALGORITHMS]
    assert remarks == []
    assert len({key.name for key in keys}) == len(keys)


def test_key_keeps_its_id_among_any_others(tmp_path: Path) -> None:
    (one,), _ = read_key_set(write_key_set(tmp_path / "1", jwk("ES256", kid="a")))
    (other,), _ = read_key_set(write_key_set(tmp_path / "2", jwk("ES256", kid="b", use="sig", x5t="?")))
    assert one.name == other.name


def test_unusable_keys_are_skipped_and_reported(tmp_path: Path) -> None:
    path = write_key_set(
        tmp_path / "jwks",
        jwk("RS256", use="enc"),
        jwk("RS256", alg="RS512"),
        {"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "oct", "k": "c2hvcnQ"},
        jwk("ES256", kid=7),
        {},
        jwk("EdDSA"),
    )
    keys, remarks = read_key_set(path)
    assert [key.algorithm for key in keys] == ["EdDSA"]
    assert [re.findall(r"key \d", remark) for remark in remarks] == [[f"key {n}"] for n in range(1, 8)]


def test_only_the_public_part_of_a_key_is_taken(tmp_path: Path) -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(PRIVATE["RS256"]))
    (key,), _ = read_key_set(
        write_key_set(tmp_path / "jwks", {n: v for n, v in private.items() if n != "key_ops"})
    )
    assert isinstance(key.key, rsa.RSAPublicKey)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"keys": 1}', '{"keys": ["x"]}', '{"keys": []}', "[" * 100, "[" * 200_000]
)
def test_key_set_is_refused_when_it_is_not_valid(tmp_path: Path, content: str) -> None:
    (tmp_path / "jwks").write_text(content)
    with pytest.raises(BadKey, match="jwks: "):
        read_key_set(tmp_path / "jwks")
