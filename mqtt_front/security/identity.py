"""Who a client says it is, who it turned out to be, or why it is turned away. Values only."""

from dataclasses import dataclass, field

from mqtt_front.reasons import Reason
from mqtt_front.security.rules import Rule


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client brought to prove who it is. Secrets stay out of `repr`, so that no log line can show them."""

    client_id: str = ""
    """As in CONNECT: empty when the server is to choose one."""
    user: str | None = None
    password: bytes | None = field(default=None, repr=False)
    address: str = ""
    """The address that it connects from, without the port."""
    certificate_name: str | None = None
    """The name in a certificate that the TLS handshake has verified, on a listener that takes it for the user."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is, as far as the server believes it."""

    user: str | None
    """None for an anonymous client."""
    method: str = "anonymous"
    """How that was found out, for the log: one word."""
    rules: tuple[Rule, ...] | None = None
    """What the client may do, where that came with its credentials. None: what the access file says. `%u` and `%c` may
    stand in them."""
    expires_s: float | None = None
    """When the client has to go (seconds since 1970): its token is valid no longer."""
    proof: str | None = field(default=None, repr=False)
    """What the identity was believed for: when that is no longer in force after a reload, the client has to go."""

    def __post_init__(self) -> None:
        """Raises ValueError for a user that is not text in UTF-8: sessions are stored under it."""
        if self.user is not None:
            self.user.encode()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client is turned away."""

    message: str
    """For the log of the server. Names no secret; the client only gets the reason."""
    reason: Reason = Reason.BAD_USER_NAME_OR_PASSWORD
