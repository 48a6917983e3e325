"""Settings of the console, checked when they are made."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from timestone.address import is_loopback, shown_address

from .problems import InvalidConfig

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9465


class Role(enum.IntEnum):
    """What a caller may do; each role includes those before it."""

    NONE = 0
    FIGURES = 1
    """Names and counts, no payloads."""
    READER = 2
    """Payloads of topics that the user may read."""
    OPERATOR = 3
    """Actions, if they are switched on."""

    @property
    def word(self) -> str:
        """Return the role as the API and the settings name it."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> "Role":
        """Return the role of a word of the settings. Raises ValueError."""
        roles = {role.word: role for role in cls if role is not cls.NONE}
        if word not in roles:
            raise ValueError(f"invalid role: expected one of {', '.join(roles)}, got {word!r:.40}")
        return roles[word]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Settings of one console. Raises InvalidConfig for an address that would show the store to other machines."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Names beside `localhost` and loopback addresses that requests may have in `Host`."""
    actions: bool = False
    users: Mapping[str, Role] = field(default_factory=dict)
    """Roles of users; passwords are those of the MQTT front."""
    anonymous: Role = Role.NONE
    """Role of a caller on loopback without a login."""
    allow_plain: bool = False
    """Whether it may listen beyond loopback without TLS, for a proxy that has it."""
    certificate: str | None = None
    key: str | None = None
    idle_s: float = 0.0
    """Time without a request after which the console ends; 0: never."""

    def __post_init__(self) -> None:
        if is_loopback(self.host):
            return
        where = shown_address(self.host, self.port)
        if not self.users or self.anonymous is not Role.NONE:
            raise InvalidConfig(
                f"console = {where} can be read from other machines without a login; set [console.users]"
            )
        if not self.has_tls and not self.allow_plain:
            raise InvalidConfig(
                f"console = {where} sends passwords without TLS; set console_certificate and console_key, or "
                "console_allow_plain = true behind a proxy that has it"
            )

    @property
    def has_tls(self) -> bool:
        """Return whether the console itself speaks TLS."""
        return self.certificate is not None and self.key is not None
