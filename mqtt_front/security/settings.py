"""The settings of who may come in: frozen values with units, ranges and reasons. Nothing is read here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timestone.declared import Declared, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LockoutSettings(Declared):
    """How often a login may fail."""

    failures: int = setting(
        10, "failed logins of one user at one address before that user has to wait there; 0: no limit", low=0
    )
    within_ms: int = setting(60_000, "failures that are further apart are forgotten", low=1)
    lock_ms: int = setting(60_000, "how long nobody is let in as that user from that address", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings(Declared):
    """Which tokens count as passwords. None do while no key is given."""

    keys: tuple[Path, ...] = setting(
        (),
        "files with one key each: a public key as PEM (RS256, ES256, EdDSA) or at least 32 secret bytes (HS256)",
    )
    jwks: Path | None = field(default=None, metadata={"help": "file with a JSON Web Key Set"})
    issuer: str | None = setting(None, "what `iss` must be; none: anything")
    audience: str | None = setting(None, "what `aud` must contain; none: anything")
    user_claim: str = setting("sub", "the claim that is the user")
    client_id_claim: str | None = setting(
        None, "a claim that the client id must be equal to; none: any client id"
    )
    acl_claim: str = setting(
        "acl", "the claim with the topics that the client may use; without it the acl_file counts"
    )
    leeway_ms: int = setting(10_000, "how far the clocks of issuer and server may be apart", low=0)
    allow_endless: bool = setting(False, "accept tokens that never expire")

    @property
    def enabled(self) -> bool:
        return bool(self.keys) or self.jwks is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(Declared):
    """Who may come in through which proof, and what they may do then."""

    allow_anonymous: bool | None = setting(
        None,
        "let clients in that do not say who they are; none: only while nobody could prove it anyway",
        heading="who may connect, and what they may do",
    )
    password_file: Path | None = field(
        default=None,
        metadata={"help": "users and hashes of passwords, by `timestone passwd` or mosquitto_passwd"},
    )
    acl_file: Path | None = field(
        default=None,
        metadata={"help": "who may publish and subscribe to what, in mosquitto's format; none: anything"},
    )
    device_topics: str | None = field(
        default=None,
        metadata={
            "help": "a filter with %c (client id) or %u (user) as a level: all clients but `backend_users` publish and "
            "receive there and nowhere else; none: anywhere",
            "metavar": "FILTER",
        },
    )
    backend_users: tuple[str, ...] = setting((), "users whom device_topics does not bind")
    tell_not_authorized: bool = setting(
        True,
        "tell MQTT 5 clients that they are not authorized for a subscription (0x87); false: only that it failed "
        "(0x80), as clients of MQTT 3 are told",
    )
    authenticators: tuple[str, ...] = setting(
        (), "plug-ins that are asked about clients nobody else knows, in this order"
    )
    authenticator_options: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, metadata={"help": "a table of options for each of `authenticators`"}
    )
    jwt: JwtSettings = field(default=JwtSettings(), metadata={"help": "tokens as passwords"})
    lockout: LockoutSettings = field(default=LockoutSettings(), metadata={"help": "failed logins"})

    @property
    def authenticates(self) -> bool:
        """Is there anything that could tell one client from another?"""
        return self.password_file is not None or bool(self.authenticators) or self.jwt.enabled

    @property
    def anonymous_by_default(self) -> bool:
        """Does a listener that says nothing about it let anonymous clients in?"""
        return not self.authenticates if self.allow_anonymous is None else self.allow_anonymous
