"""What fronts, commands and the cluster share about networks: addresses as text, such as `127.0.0.1:1883`, `[::1]:8883`
and `broker.example:1883`, and sending on a connection that may have ended. The engine has none."""

import ipaddress
from collections.abc import Sequence
from typing import Protocol

PORT_MAX = 65_535


def parse_address(text: object, *, setting: str) -> tuple[str, int]:
    """Return host and port; IPv6 addresses are in brackets. Raises ValueError that names the setting."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"invalid {setting}: expected HOST:PORT, as in 127.0.0.1:1883, got {text!r}")
    host = host.removeprefix("[").removesuffix("]")
    check_host(host, setting=setting)
    return host, int(port)


def check_host(host: str, *, setting: str) -> None:
    """Raise ValueError that names the setting for a host that no name server can be asked for: Python would raise
    UnicodeError."""
    try:
        is_valid = b"\0" not in host.encode("idna")
    except UnicodeError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"invalid {setting}: expected the name or address of a host, got {host!r}")


def shown_address(host: str, port: int) -> str:
    """Return the address in the form that `parse_address` accepts."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Connection(Protocol):
    """What `asyncio.StreamWriter` and transports have in common."""

    def is_closing(self) -> bool: ...

    def writelines(self, data: Sequence[bytes], /) -> None: ...


def send(connection: Connection, *pieces: bytes) -> None:
    """Write pieces to a connection. Raises ConnectionResetError when it has ended, where uvloop would raise
    RuntimeError."""
    if connection.is_closing():
        raise ConnectionResetError("the connection has ended")
    connection.writelines(pieces)
