"""Settings of authentication and authorisation: frozen values with units, ranges and reasons. Reads no file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timestone.declared import Declared, setting
from timestone_access.settings import JwtSettings, LockoutSettings, authenticates


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
        return authenticates(self)

    @property
    def anonymous_by_default(self) -> bool:
        """Return whether a listener without a setting of its own admits anonymous clients."""
        return not self.authenticates if self.allow_anonymous is None else self.allow_anonymous
