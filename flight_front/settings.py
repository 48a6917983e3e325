"""Settings of the Flight front: frozen values with units, ranges and reasons. Reads no file."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from timestone.address import is_loopback, parse_address
from timestone.config import MIB, Ack
from timestone.settings_schema import Declared, setting
from timestone_access.settings import JwtSettings, LoginSettings, check_exposure

PARTS_LOG = "flight-parts"
"""Log of a cluster for staged parts, in each shard."""
NODE_LOGS = {PARTS_LOG: {"segment_bytes": 32 * MIB}}
"""Small segments: what is not needed any more is deleted by whole ones."""


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Settings of connections, for the process that has them."""

    listen: str
    certificate: Path | None
    key: Path | None
    client_ca: Path | None
    user_from: str
    stream_count: int
    message_bytes: int
    batch_bytes: int
    idle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSettings(LoginSettings):
    """Table `[flight]`. Raises ValueError for contradicting settings."""

    # Rights, and the tokens that this front gives.
    acl_file: Path | None = field(
        default=None,
        metadata={
            "help": "rights on logs, lines `log read NAME`; with a login, nothing is allowed without one"
        },
    )
    jwt: JwtSettings = field(default=JwtSettings(), metadata={"help": "tokens as bearer or password"})
    login_ms: int = setting(3_600_000, "how long the token of a login by Handshake is valid", low=1000)

    # Listener and records.
    listen: str | None = setting(
        None,
        "HOST:PORT to listen on, as in 127.0.0.1:8815; port 0 takes a free one; none: no Flight server",
        heading="listener and records",
    )
    advertise: str | None = setting(
        None,
        "on a node of a cluster: HOST:PORT by which clients reach it, if it is not the address it listens on",
        metavar="HOST:PORT",
    )
    ack: Ack | None = field(
        default=None,
        metadata={
            "help": "level at which appends are acknowledged unless the client chooses; none: that of the store"
        },
    )
    visible: Literal["synced", "written"] = field(
        default="synced",
        metadata={
            "help": "records that followers see: durable ones, or all that are written, some milliseconds earlier"
        },
    )

    gateway: bool = setting(
        True,
        "a process of its own talks to the clients and reads for them, so that readers at full speed do not hold up "
        "the rest of the server; false: the server does it, which saves some 100 MB of memory",
    )

    # TLS.
    certificate: Path | None = field(
        default=None,
        metadata={
            "help": "this server's certificate and its chain in PEM; with it the listener is TLS",
            "heading": "TLS",
        },
    )
    key: Path | None = field(
        default=None, metadata={"help": "the key of the certificate in PEM; none: it is in the same file"}
    )
    client_ca: Path | None = field(
        default=None, metadata={"help": "certificates of those who sign for clients, in PEM (mTLS)"}
    )
    user_from: Literal["login", "cn", "san"] = field(
        default="login",
        metadata={
            "help": "what the user is: of the login, or of the client's certificate the common name (cn) or the first "
            "alternative name (san)"
        },
    )

    # Limits.
    stream_count: int = setting(256, "calls under way at a time", low=1, high=100_000, heading="limits")
    user_stream_count: int = setting(
        64, "calls of one user under way at a time; without logins, of one address", low=1
    )
    calls_per_s: int = setting(
        1000, "calls a second of one user, with a burst of ten seconds; 0: no limit", low=0
    )
    message_bytes: int = setting(
        16 * MIB, "maximum size of a message from a client", low=64 * 1024, high=1024 * MIB
    )
    batch_bytes: int = setting(
        2 * MIB,
        "size of the batches that are sent; larger ones cost less each MiB, and wait longer",
        low=4096,
        high=64 * MIB,
    )
    client_submitted_bytes: int = setting(
        16 * MIB, "bytes of one DoPut that wait for the disk before more is read from it", low=1
    )
    submitted_bytes: int = setting(256 * MIB, "the same of all calls together", low=1)
    put_idle_ms: int = setting(
        60_000, "silence after which a DoPut, or a call before its first message, is ended", low=100
    )
    producer_count: int = setting(
        10_000, "producers of one user whose numbers are kept; without logins, of all clients", low=1
    )
    producer_expiry_ms: int = setting(
        30 * 24 * 3_600_000, "silence after which a producer and its numbers are forgotten", low=60_000
    )
    idle_ms: int = setting(600_000, "a connection without a call is closed after this time", low=1000)

    def __post_init__(self) -> None:
        if self.ack is not None:
            object.__setattr__(self, "ack", Ack(self.ack))
        Declared.__post_init__(self)
        if self.ack is Ack.MEMORY:
            raise ValueError(
                "invalid ack: expected written or synced, since the answer has offsets, got memory"
            )
        if self.advertise is not None:
            parse_address(self.advertise, setting="advertise")
        for name, needs in (("key", "certificate"), ("client_ca", "certificate")):
            if getattr(self, name) is not None and getattr(self, needs) is None:
                raise ValueError(f"{name} needs {needs}")
        if self.user_from != "login" and self.client_ca is None:
            raise ValueError("user_from needs client_ca")
        if self.listen is not None:
            host, _ = parse_address(self.listen, setting="listen")
            if not self.knows_users:
                check_exposure(
                    self.listen, is_local=is_loopback(host), remote_allowed=self.allow_anonymous_remote
                )
            elif self.certificate is None and not is_loopback(host):
                raise ValueError(
                    f"listening on {self.listen} with logins but without TLS would send passwords in clear text: "
                    "set certificate, or listen on 127.0.0.1"
                )

    @property
    def knows_users(self) -> bool:
        """Return whether clients have to log in."""
        return self.authenticates or self.user_from != "login"

    @property
    def listener(self) -> ListenerSettings:
        """Return the settings of connections. `listen` has to be set."""
        return ListenerSettings(*(getattr(self, each.name) for each in fields(ListenerSettings)))
