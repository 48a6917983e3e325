"""Server on another machine, or cluster, that is read or appended to over Arrow Flight, in the place of a folder. Opens
nothing but the files that the options name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.option_text import OptionText
from timestone.address import parse_address

_ADDRESS, _CLUSTER = "flight", "cluster"
_USER, _PASSWORD_FILE, _CA_FILE = "flightUser", "flightPasswordFile", "flightCaFile"
OPTIONS = (_ADDRESS, _CLUSTER, _USER, _PASSWORD_FILE, _CA_FILE)


@dataclass(frozen=True, slots=True)
class FlightServer:
    """Address and login. The driver reads the files; tasks get what is in them."""

    address: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    authority: bytes | None = field(default=None, repr=False)
    """Certificates in PEM that the server's is checked with; None: a connection without TLS."""
    nodes: tuple[str, ...] = ()
    """Addresses of nodes of a cluster, any of which may be asked; empty for a server alone."""


def flight_server(texts: OptionText, instead: Mapping[str, str]) -> FlightServer | None:
    """Return the server that the options name; None without one. instead: options that cannot be given beside it, and
    what to do in their place. Raises InvalidOption."""
    given = next((name for name in OPTIONS if name in texts), None)
    if given is None:
        return None
    option = next((name for name in (_ADDRESS, _CLUSTER) if name in texts), None)
    if option is None:
        raise InvalidOption(
            f"invalid {given}: expected flight beside it, the HOST:PORT of a server, got none"
        )
    if _ADDRESS in texts and _CLUSTER in texts:
        raise InvalidOption("invalid cluster: expected flight or cluster, got both")
    refused = next((name for name in instead if name in texts), None)
    if refused is not None:
        raise InvalidOption(f"unsupported option {refused!r} beside {option}: {instead[refused]}")
    addresses = (
        tuple(one.strip() for one in texts[option].split(",")) if option == _CLUSTER else (texts[option],)
    )
    try:
        for address in addresses:
            parse_address(address, setting=option)
    except ValueError as error:
        raise InvalidOption(str(error)) from None
    password = _file(texts, _PASSWORD_FILE)
    if (password is None) is not (_USER not in texts):
        given, missing = (_USER, _PASSWORD_FILE) if password is None else (_PASSWORD_FILE, _USER)
        raise InvalidOption(f"invalid {given}: expected {missing} beside it, got none")
    return FlightServer(
        addresses[0],
        texts.get(_USER),
        None if password is None else password.decode().rstrip("\r\n"),
        _file(texts, _CA_FILE),
        addresses if option == _CLUSTER else (),
    )


def _file(texts: OptionText, name: str) -> bytes | None:
    try:
        return Path(texts[name]).read_bytes() if name in texts else None
    except OSError as error:
        raise InvalidOption(f"invalid {name}: {texts[name]}: {error.strerror}") from None
