"""Credentials of a client, its identity once proven, or the reason of its refusal. Values only."""

from dataclasses import dataclass, field

from mqtt_front.reasons import Reason
from mqtt_front.security.rules import Rule


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that a client has sent. Secrets stay out of `repr`, so that no log line can show them."""

    client_id: str = ""
    """As in CONNECT: empty if the server is to assign one."""
    user: str | None = None
    password: bytes | None = field(default=None, repr=False)
    address: str = ""
    """Address of the client, without the port."""
    certificate_name: str | None = None
    """Name in a certificate verified by the TLS handshake, on a listener that uses it as the user."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of an admitted client."""

    user: str | None
    """None for an anonymous client."""
    method: str = "anonymous"
    """Method of the proof, one word for the log."""
    rules: tuple[Rule, ...] | None = None
    """Access rules from its credentials, with `%u` and `%c` as placeholders; None: those of the access file."""
    expires_s: float | None = None
    """End of the connection (seconds since 1970): its token expires."""
    proof: str | None = field(default=None, repr=False)
    """Proof of the identity. A reload that makes it invalid disconnects the client."""

    def __post_init__(self) -> None:
        """Raises ValueError for a user that is not valid UTF-8: sessions are stored under it."""
        if self.user is not None:
            self.user.encode()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a client is refused."""

    message: str
    """For the log of the server. Contains no secret; the client gets the reason code only."""
    reason: Reason = Reason.BAD_USER_NAME_OR_PASSWORD
