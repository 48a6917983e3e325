import base64
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.support.signing_keys import PRIVATE, jwk, public_pem, token, write_key_set
from timestone_access.identity import Access, Credentials, Identity, Refusal, Rule
from timestone_access.settings import JwtSettings
from timestone_access.token_authenticator import TokenAuthenticator, read_token_authenticator

LOG = logging.getLogger("timestone.mqtt")
Ask = Callable[[bytes], Identity | Refusal | None]


@pytest.fixture
def key_set(tmp_path: Path) -> Path:
    return write_key_set(tmp_path / "jwks", *(jwk(algorithm, kid=algorithm) for algorithm in PRIVATE))


def authenticator(path: Path, **settings: object) -> TokenAuthenticator:
    return read_token_authenticator(JwtSettings(jwks=path, **settings), LOG)  # type: ignore[arg-type]


def ask(believer: TokenAuthenticator, password: bytes, client_id: str = "c") -> Identity | Refusal | None:
    return believer.authenticate(Credentials(client_id, "any", password, "192.0.2.1"))


def refused(believer: TokenAuthenticator, password: bytes) -> str:
    answer = ask(believer, password)
    assert isinstance(answer, Refusal)
    assert password.decode("latin-1")[:12] not in answer.message
    return answer.message


@pytest.mark.parametrize("algorithm", PRIVATE)
@pytest.mark.parametrize("named", [True, False], ids=["kid", "no kid"])
def test_token_of_each_algorithm_is_accepted(key_set: Path, algorithm: str, named: bool) -> None:
    began_s = int(time.time())
    answer = ask(authenticator(key_set), token(algorithm, key_id=algorithm if named else None))
    ended_s = int(time.time())
    assert isinstance(answer, Identity)
    assert (answer.user, answer.method, answer.rules) == ("alice", "token", None)
    assert answer.expires_s is not None
    assert began_s + 70 <= answer.expires_s <= ended_s + 70


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_single_key_is_used_for_any_key_id(tmp_path: Path, algorithm: str) -> None:
    (tmp_path / "key").write_bytes(public_pem(algorithm))
    believer = read_token_authenticator(JwtSettings(keys=(tmp_path / "key",)), LOG)
    assert isinstance(ask(believer, token(algorithm, key_id="whatever")), Identity)


@pytest.mark.parametrize("password", [b"", b"secret", b"a.b.c", b"eyJhbGciOiJ", b"eyJ.x", b"\xff" * 9])
def test_password_that_is_not_a_token_is_left_to_other_authenticators(key_set: Path, password: bytes) -> None:
    assert ask(authenticator(key_set), password) is None
    assert authenticator(key_set).authenticate(Credentials("c", "any", None)) is None


WRONG = {
    "expired": ({"exp": 1_000_000}, {}, "has expired"),
    "not yet": ({"nbf": 4_000_000_000}, {}, "is not valid yet"),
    "no exp": ({"exp": None}, {}, "lacks a claim"),
    "other audience": ({"aud": "them"}, {"audience": "us"}, r"is for another audience \(aud\)"),
    "no audience": ({}, {"audience": "us"}, "lacks a claim"),
    "other issuer": ({"iss": "them"}, {"issuer": "us"}, r"is by another issuer \(iss\)"),
    "no issuer": ({}, {"issuer": "us"}, "lacks a claim"),
    "no user": ({"sub": None}, {}, "no text in claim 'sub'"),
    "empty user": ({"name": ""}, {"user_claim": "name"}, "no text in claim 'name'"),
    "other client": ({"cid": "other"}, {"client_id_claim": "cid"}, "for another client id"),
    "no client": ({}, {"client_id_claim": "cid"}, "for another client id"),
    "acl of a wrong kind": ({"acl": "all"}, {}, "a claim 'acl' that cannot be used"),
    "acl with one filter": ({"acl": {"pub": "a/#"}}, {}, "a claim 'acl' that cannot be used"),
    "acl with a wrong filter": ({"acl": {"pub": ["a#"]}}, {}, "a claim 'acl' that cannot be used"),
    "acl with a wrong word": ({"acl": {"publish": ["a"]}}, {}, "a claim 'acl' that cannot be used"),
    "acl without end": ({"acl": {"pub": ["a"] * 1001}}, {}, "a claim 'acl' that cannot be used"),
}


@pytest.mark.parametrize(("claims", "settings", "complaint"), WRONG.values(), ids=WRONG.keys())
def test_invalid_claims_are_refused_with_the_reason(
    key_set: Path, claims: dict[str, Any], settings: dict[str, object], complaint: str
) -> None:
    assert re.search(complaint, refused(authenticator(key_set, **settings), token("ES256", **claims)))


def test_valid_claims_are_used(key_set: Path) -> None:
    believer = authenticator(
        key_set, audience="us", issuer="them", user_claim="name", client_id_claim="cid", acl_claim="may"
    )
    answer = ask(
        believer,
        token(
            "RS256", aud=["others", "us"], iss="them", name="bob", cid="c",
            may={"pub": ["d/%c/#"], "sub": ["x"], "all": ["y"], "deny": ["z"]},
        ),
    )  # fmt: skip
    assert isinstance(answer, Identity)
    assert answer.user == "bob"
    assert answer.rules == (
        Rule("d/%c/#", Access.WRITE), Rule("x", Access.READ), Rule("y", Access.READ_WRITE), Rule("z", Access.DENY),
    )  # fmt: skip


def test_token_without_expiry_is_accepted_only_if_configured(key_set: Path) -> None:
    answer = ask(authenticator(key_set, allow_endless=True), token("ES256", exp=None))
    assert isinstance(answer, Identity) and answer.expires_s is None


def test_small_clock_differences_are_accepted(key_set: Path) -> None:
    late = token("ES256", exp=int(time.time()) - 1800)
    assert isinstance(ask(authenticator(key_set, leeway_ms=3_600_000), late), Identity)
    assert isinstance(ask(authenticator(key_set, leeway_ms=0), late), Refusal)


def forged(header: dict[str, object], signature: bytes = b"") -> bytes:
    def part(content: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=")

    claims = {"sub": "root", "exp": int(time.time()) + 60}
    return part(header) + b"." + part(claims) + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


def test_token_does_not_choose_its_algorithm(tmp_path: Path) -> None:
    """The oldest trick: sign with HMAC, and with the server's public key as the secret."""
    (tmp_path / "key").write_bytes(public_pem("RS256"))
    believer = read_token_authenticator(JwtSettings(keys=(tmp_path / "key",)), LOG)
    unsigned = forged({"alg": "HS256", "typ": "JWT"}).removesuffix(b".")
    mac = hmac.new(public_pem("RS256"), unsigned, hashlib.sha256).digest()
    assert "unknown key" in refused(believer, unsigned + b"." + base64.urlsafe_b64encode(mac).rstrip(b"="))


@pytest.mark.parametrize("algorithm", ["none", "None", "HS512", "ES384", "", None, 7, ["ES256"]])
def test_other_algorithms_are_refused(key_set: Path, algorithm: object) -> None:
    message = refused(authenticator(key_set), forged({"alg": algorithm}))
    assert message in ("token signed with an unknown key", "its token cannot be read")


def test_a_changed_token_is_refused(key_set: Path) -> None:
    head, _, signature = token("ES256").split(b".")
    other = forged({"alg": "ES256"}).split(b".")[1]
    assert "a signature that does not hold" in refused(
        authenticator(key_set), head + b"." + other + b"." + signature
    )


def test_token_signed_by_another_key_is_refused(key_set: Path) -> None:
    stranger = jwt.encode(
        {"sub": "alice", "exp": time.time() + 60}, b"another secret of more than 32 bytes", "HS256"
    )
    assert "a signature that does not hold" in refused(authenticator(key_set), stranger.encode())
    assert "unknown key" in refused(authenticator(key_set), token("ES256", key_id="RS256"))


@pytest.mark.parametrize(
    "password",
    [
        b"eyJ..",
        b"eyJ." + b"x" * 60_000 + b".",
        b"eyJ\xff.\xff.\xff",
        base64.urlsafe_b64encode(b'{"' + b"[" * 30_000).rstrip(b"=") + b".e30.",
        base64.urlsafe_b64encode(b'{"alg": ' + b"[" * 30_000).rstrip(b"=") + b".e30.",
        forged({"alg": "ES256", "kid": ["x"]}),
        forged({"alg": "ES256", "crit": ["b64"], "b64": False}),
        forged({"alg": "ES256"}, b"\x00" * 64),
    ],
    ids=[
        "empty",
        "long",
        "not base64",
        "deep claims",
        "deep header",
        "odd key",
        "odd header",
        "no signature",
    ],
)
def test_malformed_token_is_refused_without_an_exception(key_set: Path, password: bytes) -> None:
    refused(authenticator(key_set), password)


def test_identity_is_valid_while_its_key_is_known(key_set: Path, tmp_path: Path) -> None:
    believer = authenticator(key_set)
    answer = ask(believer, token("ES256"))
    assert isinstance(answer, Identity)
    assert believer.still_holds(answer)
    rotated = authenticator(write_key_set(tmp_path / "new", jwk("EdDSA"), jwk("ES256", kid="renamed")))
    assert rotated.still_holds(answer)
    without = authenticator(write_key_set(tmp_path / "less", jwk("EdDSA")))
    assert not without.still_holds(answer)
    assert not believer.still_holds(replace(answer, proof="?"))


def test_skipped_keys_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_key_set(tmp_path / "jwks", jwk("RS256", use="enc"), jwk("EdDSA"))
    assert isinstance(ask(authenticator(path), token("EdDSA")), Identity)
    assert "key 1 is not for signatures: left out" in caplog.text
