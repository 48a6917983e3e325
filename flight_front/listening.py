"""gRPC servers of the front: options that limit connections and messages, the address, and TLS. gRPC brings its own
TLS, from version 1.2 on. Runs in an event loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from flight_front.settings import ListenerSettings
from timestone.address import parse_address, shown_address
from timestone_access.tls_context import tls_context

_FRAMING_BYTES = 64 * 1024
"""Room for the fields around the largest batch."""
_PING_S, _PONG_S = 60, 20
_UNLIMITED = -1
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
)
"""Options of the gateway's channel to the server: the limits are those of the client's own connection."""


def listening(
    settings: ListenerSettings, handlers: Sequence[Any], certificates: Callable[[], Any]
) -> tuple[Any, int]:
    """Return a server for clients, to be started, and its port. Raises OSError if the address cannot be used.
    certificates: called for each connection; returns None without TLS."""
    host, port = parse_address(settings.listen, setting="listen")
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", settings.message_bytes + _FRAMING_BYTES),
            ("grpc.max_send_message_length", _UNLIMITED),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.max_concurrent_streams", settings.stream_count),
            ("grpc.max_connection_idle_ms", settings.idle_ms),
            ("grpc.keepalive_time_ms", _PING_S * 1000),
            ("grpc.keepalive_timeout_ms", _PONG_S * 1000),
            ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a second half
        ]
    )
    server.add_generic_rpc_handlers(tuple(handlers))
    address = shown_address(host, port)
    try:
        if certificates() is None:
            return server, server.add_insecure_port(address)
        credentials = grpc.dynamic_ssl_server_credentials(
            certificates(), certificates, require_client_authentication=settings.client_ca is not None
        )
        return server, server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {settings.listen}: {error}") from error


def listening_for_gateway(address: str, handlers: Sequence[Any]) -> Any:
    """Return a server for a gateway on a Unix socket, `unix:PATH`, to be started."""
    server = grpc.aio.server(options=[*CHANNEL_OPTIONS, ("grpc.max_metadata_size", 32 * 1024)])
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(address)
    return server


@dataclass(frozen=True, slots=True)
class _Files:
    """Settings for the check of the files."""

    certificate: Path | None
    key: Path | None
    client_ca: Path | None
    require_certificate: bool
    tls_minimum: str = "1.2"
    ciphers: str | None = None
    client_crl: Path | None = None


def read_certificates(settings: ListenerSettings) -> Any:
    """Return the certificates for new connections; None without TLS. Raises ValueError, which names the file."""
    if settings.certificate is None:
        return None
    files = _Files(settings.certificate, settings.key, settings.client_ca, settings.client_ca is not None)
    try:
        # Errors of gRPC do not name the file, and come with the first client.
        tls_context(files, protocols=["h2"])
        key = (settings.key or settings.certificate).read_bytes()
        chain = settings.certificate.read_bytes()
        authorities = None if settings.client_ca is None else settings.client_ca.read_bytes()
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from error
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authorities)
