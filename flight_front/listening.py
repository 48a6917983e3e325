"""gRPC servers of the front: options that limit connections and messages, and the address. Runs in an event loop."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from flight_front.settings import ListenerSettings
from timestone.address import parse_address, shown_address

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
