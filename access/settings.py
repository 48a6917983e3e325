"""Settings of logins that all fronts share: frozen values with units, ranges and reasons. Reads no file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timestone.settings_schema import Declared, setting


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
class LoginSettings(Declared):
    """Settings of a front that say who its clients are; a front adds its own."""

    password_file: Path | None = field(
        default=None,
        metadata={
            "help": "users and password hashes, as written by `timestone passwd` or mosquitto_passwd",
            "heading": "authentication and access",
        },
    )
    authenticators: tuple[str, ...] = setting(
        (), "plug-ins that are asked in order about clients unknown to password_file and jwt"
    )
    authenticator_options: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, metadata={"help": "table of options for each of `authenticators`"}
    )
    jwt: JwtSettings = field(default=JwtSettings(), metadata={"help": "tokens as passwords"})
    lockout: LockoutSettings = field(default=LockoutSettings(), metadata={"help": "failed logins"})
    allow_anonymous_remote: bool = setting(
        False, "listen beyond loopback although clients need no credentials"
    )

    @property
    def authenticates(self) -> bool:
        """Return whether any login is configured."""
        return self.password_file is not None or bool(self.authenticators) or self.jwt.enabled


def check_exposure(address: str, *, is_local: bool, remote_allowed: bool) -> None:
    """Check a listener that admits clients without credentials. Raises ValueError unless only this machine can reach
    it or the user allowed others (`allow_anonymous_remote`)."""
    if not (is_local or remote_allowed):
        raise ValueError(
            f"listening on {address} without authentication would allow every client that reaches it to "
            "publish and read everything: set a password_file, listen on 127.0.0.1, or set "
            "allow_anonymous_remote = true if that is intended"
        )
