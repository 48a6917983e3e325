"""Settings of authentication and authorisation: frozen values with units, ranges and reasons. Reads no file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timestone.declared import Declared, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LockoutSettings(Declared):
    """Limits of failed logins."""

    failures: int = setting(
        10, "failed logins of one user at one address before a lockout there; 0: no limit", low=0
    )
    within_ms: int = setting(60_000, "failed logins further apart do not add up", low=1)
    lock_ms: int = setting(60_000, "duration of a lockout of a user at an address", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings(Declared):
    """Tokens accepted as passwords; none unless a key is given."""

    keys: tuple[Path, ...] = setting(
        (),
        "files with one key each: a public key as PEM (RS256, ES256, EdDSA) or at least 32 secret bytes (HS256)",
    )
    jwks: Path | None = field(default=None, metadata={"help": "file with a JSON Web Key Set"})
    issuer: str | None = setting(None, "required value of `iss`; none: any")
    audience: str | None = setting(None, "required value in `aud`; none: any")
    user_claim: str = setting("sub", "claim with the user")
    client_id_claim: str | None = setting(
        None, "claim that the client id must be equal to; none: any client id"
    )
    acl_claim: str = setting(
        "acl", "claim with the topics that the client may use; without it the acl_file applies"
    )
    leeway_ms: int = setting(10_000, "accepted difference between the clocks of issuer and server", low=0)
    allow_endless: bool = setting(False, "accept tokens that never expire")

    @property
    def enabled(self) -> bool:
        return bool(self.keys) or self.jwks is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(Declared):
    """Authentication and authorisation of clients."""

    allow_anonymous: bool | None = setting(
        None,
        "admit clients without credentials; none: only if no authentication is configured",
        heading="authentication and access",
    )
    password_file: Path | None = field(
        default=None,
        metadata={"help": "users and password hashes, as written by `timestone passwd` or mosquitto_passwd"},
    )
    acl_file: Path | None = field(
        default=None,
        metadata={"help": "access rules in mosquitto's format; none: everything is allowed"},
    )
    device_topics: str | None = field(
        default=None,
        metadata={
            "help": "filter with %c (client id) or %u (user) as a level, to which all clients but `backend_users` are "
            "confined; none: no restriction",
            "metavar": "FILTER",
        },
    )
    backend_users: tuple[str, ...] = setting((), "users that device_topics does not confine")
    tell_not_authorized: bool = setting(
        True,
        "answer a forbidden subscription of an MQTT 5 client with 0x87 (not authorized); false: with 0x80 (failure), "
        "as for clients of MQTT 3",
    )
    authenticators: tuple[str, ...] = setting(
        (), "plug-ins that are asked in order about clients unknown to password_file and jwt"
    )
    authenticator_options: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, metadata={"help": "table of options for each of `authenticators`"}
    )
    jwt: JwtSettings = field(default=JwtSettings(), metadata={"help": "tokens as passwords"})
    lockout: LockoutSettings = field(default=LockoutSettings(), metadata={"help": "failed logins"})

    @property
    def authenticates(self) -> bool:
        """Return whether any authentication is configured."""
        return self.password_file is not None or bool(self.authenticators) or self.jwt.enabled

    @property
    def anonymous_by_default(self) -> bool:
        """Return whether a listener without a setting of its own admits anonymous clients."""
        return not self.authenticates if self.allow_anonymous is None else self.allow_anonymous
