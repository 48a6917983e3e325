"""Authentication by a JSON Web Token as password (RFC 7519): signed with a known key, valid now, issued for this
server."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from timestone.errors import InvalidName
from timestone.filters import validate_filter
from timestone_access.identity import Access, Credentials, Identity, Refusal, Rule
from timestone_access.settings import JwtSettings
from timestone_access.token_key import TokenKey, read_key_file, read_key_set

_ACCESS = {"pub": Access.WRITE, "sub": Access.READ, "all": Access.READ_WRITE, "deny": Access.DENY}
_RULES_MAX = 1000
_FAULTS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience (aud)"),
    (jwt.InvalidIssuerError, "is by another issuer (iss)"),
    (jwt.MissingRequiredClaimError, "lacks a claim that it must have"),
    (jwt.InvalidSignatureError, "has a signature that does not hold"),
)


class TokenAuthenticator:
    """Authenticator for tokens signed with one of `keys`."""

    def __init__(self, settings: JwtSettings, keys: Sequence[TokenKey]) -> None:
        self._settings = settings
        self._keys = tuple(keys)

    def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
        """Check a token. None for a password that is not a token. The user name beside a token is ignored: MQTT 3.1.1
        has no password without one, so clients send any."""
        password = credentials.password or b""
        if not password.startswith(b"eyJ") or password.count(b".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(password)
            candidates = self._candidates(header)
            if not candidates:
                return Refusal("token signed with an unknown key")
            return self._identity(credentials, password, candidates)
        # The header is parsed before the signature is checked: every error of the parser means an invalid token.
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            words = next((words for kind, words in _FAULTS if isinstance(error, kind)), "cannot be read")
            return Refusal(f"its token {words}")

    def still_holds(self, identity: Identity) -> bool:
        """Return whether the key of the client's token is still among the keys."""
        return any(key.name == identity.proof for key in self._keys)

    def _candidates(self, header: Mapping[str, Any]) -> list[TokenKey]:
        key_id, algorithm = header.get("kid"), header.get("alg")
        named = [key for key in self._keys if key.key_id == key_id] if key_id is not None else []
        # Keys in PEM have no id, so they match a token with any key id.
        candidates = named or [key for key in self._keys if key_id is None or key.key_id is None]
        return [key for key in candidates if key.algorithm == algorithm]

    def _identity(
        self, credentials: Credentials, token: bytes, candidates: Sequence[TokenKey]
    ) -> Identity | Refusal:
        """Check the token with each key; raise the error of the last one."""
        for key in candidates:
            try:
                claims = self._claims(token, key)
            except jwt.InvalidSignatureError:
                if key is candidates[-1]:
                    raise
            else:
                return self._believed(credentials, claims, key)
        raise AssertionError("the last candidate returns or raises")

    def _claims(self, token: bytes, key: TokenKey) -> dict[str, Any]:
        settings = self._settings
        return jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_ms / 1000,
            options={
                "require": [] if settings.allow_endless else ["exp"],
                "verify_aud": settings.audience is not None,
            },
        )

    def _believed(
        self, credentials: Credentials, claims: Mapping[str, Any], key: TokenKey
    ) -> Identity | Refusal:
        settings = self._settings
        user = claims.get(settings.user_claim)
        if not isinstance(user, str) or not user:
            return Refusal(f"its token has no text in claim {settings.user_claim!r}")
        if settings.client_id_claim is not None:
            bound = claims.get(settings.client_id_claim)
            if bound != credentials.client_id:
                return Refusal(f"its token (user {user!r}) is for another client id")
        try:
            rules = _rules(claims[settings.acl_claim]) if settings.acl_claim in claims else None
        except (InvalidName, ValueError, TypeError, AttributeError, KeyError):
            return Refusal(
                f"its token (user {user!r}) has a claim {settings.acl_claim!r} that cannot be used"
            )
        expires_s = float(claims["exp"]) + settings.leeway_ms / 1000 if "exp" in claims else None
        return Identity(user, "token", rules, expires_s, key.name)


def _rules(claim: Mapping[str, Sequence[str]]) -> tuple[Rule, ...]:
    """Return the rules of `{"pub": [filters], "sub": […], "all": […], "deny": […]}`."""
    rules = []
    for word, filters in claim.items():
        if isinstance(filters, str):
            raise TypeError("invalid rules: expected a list of filters, got one filter")
        for topic_filter in filters:
            validate_filter(topic_filter)
            rules.append(Rule(topic_filter, _ACCESS[word]))
    if len(rules) > _RULES_MAX:
        raise ValueError("too many rules")
    return tuple(rules)


def read_token_authenticator(settings: JwtSettings, log: logging.Logger) -> TokenAuthenticator:
    """Read the keys that the settings name. Raises OSError and BadKey."""
    keys = [read_key_file(path) for path in settings.keys]
    if settings.jwks is not None:
        found, remarks = read_key_set(settings.jwks)
        keys += found
        for remark in remarks:
            log.warning("%s: left out", remark)
    return TokenAuthenticator(settings, keys)
