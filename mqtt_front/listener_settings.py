"""Settings of one listener: its address, its protocols, and its admission of clients."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from timestone.address import is_loopback, parse_address
from timestone.settings_schema import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Table of `[[mqtt.listeners]]`. Raises ValueError for contradicting settings."""

    address: str = field(metadata={"help": "HOST:PORT; port 0 takes a free one"})
    allow_anonymous: bool | None = setting(
        None, "let clients in that do not say who they are; none: as for the other listeners"
    )

    cluster_redirect: str | None = setting(
        None,
        "address of this listener as clients know it. In a cluster, clients of MQTT 5 that arrive at other "
        "nodes are redirected to it while this node leads; none: they are passed on",
    )

    # WebSocket.
    websocket: bool = setting(False, "MQTT in WebSocket frames, for browsers")
    origins: tuple[str, ...] = setting(
        (),
        "pages that may connect from a browser, as in https://example.org; `*`: any. Without it: pages of "
        "this machine, and any page where clients have to say who they are",
    )

    # TLS.
    certificate: Path | None = setting(
        None, "this server's certificate and its chain in PEM; with it the listener is TLS"
    )
    key: Path | None = setting(None, "the key of the certificate in PEM; none: it is in the same file")
    tls_minimum: Literal["1.2", "1.3"] = setting("1.2", "the oldest version of TLS that is spoken")
    ciphers: str | None = setting(None, "cipher suites of TLS 1.2 in OpenSSL's words")
    client_ca: Path | None = setting(
        None, "certificates of those who sign for clients: a file in PEM or a directory"
    )
    client_crl: Path | None = setting(
        None, "certificates of clients that are revoked, in PEM, one list for each CA"
    )
    require_certificate: bool = setting(False, "turn clients without a certificate away (mTLS)")
    user_from: Literal["login", "cn", "san"] = setting(
        "login",
        "what the user is: of the login, or of the client's certificate the common name (cn) or the first "
        "alternative name (san); a client with a certificate then needs no password",
    )

    def __post_init__(self) -> None:
        parse_address(self.address, setting="address")
        if self.cluster_redirect is not None:
            parse_address(self.cluster_redirect, setting="cluster_redirect")
        for name, needs in _NEEDS.items():
            if getattr(self, name) not in (None, False, (), "login") and not getattr(self, needs):
                raise ValueError(f"listener {self.address}: {name} needs {needs}")

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Return host and port."""
        return parse_address(self.address, setting="address")

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can reach it."""
        return is_loopback(self.host_and_port[0])

    @property
    def protocol(self) -> str:
        """Return its protocols, for the start message."""
        if self.websocket:
            return "WebSocket over TLS" if self.certificate else "WebSocket"
        return "TLS" if self.certificate else "TCP"


_NEEDS = {
    "origins": "websocket",
    "key": "certificate",
    "ciphers": "certificate",
    "client_ca": "certificate",
    "client_crl": "client_ca",
    "require_certificate": "client_ca",
    "user_from": "client_ca",
}
"""Settings that require another one."""
