"""Credentials of a client, its identity once proven, or the reason of its refusal. Values only."""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Access(enum.IntFlag):
    """Kind of access of a rule. DENY applies to both directions."""

    DENY = 0
    READ = 1
    WRITE = 2
    READ_WRITE = 3


class Rule(NamedTuple):
    """Topics and the access to them. `%c` and `%u` in a pattern stand for client id and user."""

    topic_filter: str
    access: Access


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


class Cause(enum.Enum):
    """Kind of a refusal, which each front says in its protocol's words."""

    CREDENTIALS = "unknown user or wrong secret"
    NOT_AUTHORIZED = "not admitted this way"
    LOCKED_OUT = "too many failed logins"
    BUSY = "too many logins at once"
    UNAVAILABLE = "an authenticator failed"
    STOPPING = "the server stops"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a client is refused."""

    message: str
    """For the log of the server. Contains no secret; the client gets the cause only."""
    cause: Cause = Cause.CREDENTIALS
