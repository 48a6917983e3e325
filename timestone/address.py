"""Network addresses as text: `127.0.0.1:1883`, `[::1]:8883`, `broker.example:1883`. For the fronts and the commands;
the engine has none."""

import ipaddress

PORT_MAX = 65_535


def parse_address(text: str, *, setting: str) -> tuple[str, int]:
    """Return host and port; IPv6 addresses are in brackets. Raises ValueError that names the setting."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"invalid {setting}: expected HOST:PORT, as in 127.0.0.1:1883, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


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
