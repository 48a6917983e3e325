"""Settings of authentication and authorisation: frozen values with units, ranges and reasons. Reads no file."""

from dataclasses import dataclass
from pathlib import Path

from timestone.settings_schema import setting
from timestone_access.settings import LoginSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(LoginSettings):
    """Authentication and authorisation of clients."""

    allow_anonymous: bool | None = setting(
        None,
        "admit clients without credentials; none: only if no authentication is configured",
    )
    acl_file: Path | None = setting(None, "access rules in mosquitto's format; none: everything is allowed")
    device_topics: str | None = setting(
        None,
        "filter with %c (client id) or %u (user) as a level, to which all clients but `backend_users` are "
        "confined; none: no restriction",
        metavar="FILTER",
    )
    backend_users: tuple[str, ...] = setting((), "users that device_topics does not confine")
    tell_not_authorized: bool = setting(
        True,
        "answer a forbidden subscription of an MQTT 5 client with 0x87 (not authorized); false: with 0x80 (failure), "
        "as for clients of MQTT 3",
    )

    @property
    def anonymous_by_default(self) -> bool:
        """Return whether a listener without a setting of its own admits anonymous clients."""
        return not self.authenticates if self.allow_anonymous is None else self.allow_anonymous
