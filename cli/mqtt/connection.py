"""Options with which `timestone pub` and `sub` connect to an MQTT server, and the connection that they describe.

The names are those of mosquitto_pub and mosquitto_sub. A password is never an option, which every user of the machine
can see: it comes from a file or from the environment.
"""

import functools
import getpass
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from mqtt_front.client import Client, Refused
from mqtt_front.codec.packets import MQTT_3_1_1, MQTT_5, Connect
from mqtt_front.codec.properties import Properties
from mqtt_front.errors import MqttError
from timestone.address import check_host, shown_address

from ..errors import CommandError, UsageError
from ..group import Option
from ..input.parameters import COUNT, FILE, count_from, duration_ms

PASSWORD_VARIABLE = "MQTT_PASSWORD"
_LEVELS = {"311": MQTT_3_1_1, "5": MQTT_5}
_PORT, _TLS_PORT = 1883, 8883
_HEADING = "Connection"
HELP_WITHOUT_H = {"show_default": True, "help_option_names": ["--help"]}
"""Settings of a command whose `-h` is the host, as that of mosquitto_pub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Options of the connection; the fields have their names."""

    host: str
    port: int | None
    client_id: str
    user: str | None
    password_file: Path | None
    version: str
    keep_alive: int
    timeout_ms: int
    tls: bool
    cafile: Path | None
    cert: Path | None
    key: Path | None
    insecure: bool


def _option(*names: str, **attributes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(*names, cls=Option, heading=_HEADING, **attributes)


_OPTIONS = (
    _option("-h", "--host", metavar="HOST", default="127.0.0.1", help="The server."),
    _option(
        "-p",
        "--port",
        metavar="PORT",
        type=count_from(1, 65_535),
        help="Its port.  [default: 1883; with TLS 8883]",
    ),
    _option(
        "-i",
        "--id",
        "client_id",
        metavar="ID",
        default="",
        show_default=False,
        help="The client id.  [default: the server's choice]",
    ),
    _option("-u", "--user", metavar="USER", help="The name of the user."),
    _option(
        "-P",
        "--password-file",
        metavar="FILE",
        type=FILE,
        help=f"The password is the first line of FILE; -: of standard input.  [default: from {PASSWORD_VARIABLE}]",
    ),
    _option("-V", "--version", type=click.Choice(list(_LEVELS)), default="5", help="The version of MQTT."),
    _option(
        "-k", "--keep-alive", metavar="SECONDS", type=COUNT, default=60, help="The server is pinged so often."
    ),
    _option(
        "--timeout",
        "timeout_ms",
        metavar="DURATION",
        type=duration_ms("s"),
        default="10s",
        help="How long an answer of the server may take.",
    ),
    _option("--tls", is_flag=True, help="Use TLS, with the certificates that this machine trusts."),
    _option("--cafile", metavar="FILE", type=FILE, help="Use TLS, and trust these certificates (PEM)."),
    _option("--cert", metavar="FILE", type=FILE, help="This client's certificate (PEM)."),
    _option("--key", metavar="FILE", type=FILE, help="The key of --cert, if it is in another file."),
    _option("--insecure", is_flag=True, help="Accept a certificate of another host name."),
)


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of Connection; the function gets them as `connection`."""

    @functools.wraps(function)
    def with_connection(**given: Any) -> Any:
        own = {field.name: given.pop(field.name) for field in fields(Connection)}
        return function(connection=Connection(**own), **given)

    declared: Callable[..., Any] = with_connection
    for option in reversed(_OPTIONS):
        declared = option(declared)
    return declared


@contextmanager
def connected(options: Connection, *, clean: bool = True, expiry_s: int | None = None) -> Iterator[Client]:
    """Give a connected client; inside, its errors become lines that name the server. Raises UsageError."""
    tls = _tls_context(options)
    port = options.port or (_TLS_PORT if tls else _PORT)
    password = _password(options.password_file)
    if password is not None and options.user is None:
        raise UsageError("a password needs --user")
    level = _LEVELS[options.version]
    connect = Connect(
        options.client_id,
        level,
        clean,
        options.keep_alive,
        None,
        options.user,
        password,
        Properties(session_expiry_interval=expiry_s) if level == MQTT_5 else Properties(),
    )
    try:
        check_host(options.host, setting="host")
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        client = Client((options.host, port), connect, tls=tls, timeout_s=options.timeout_ms / 1000)
    except (Refused, MqttError, OSError, ValueError) as error:
        raise CommandError(_of_server(options.host, port, error)) from error
    with client:
        try:
            yield client
        except BrokenPipeError:
            raise  # the reader of standard output has gone
        except (Refused, MqttError, ConnectionError, TimeoutError, ssl.SSLError, ValueError) as error:
            raise CommandError(_of_server(options.host, port, error)) from error


def _of_server(host: str, port: int, error: Exception) -> str:
    return f"{shown_address(host, port)}: {getattr(error, 'strerror', None) or error}"


def _password(file: Path | None) -> bytes | None:
    """Return the password, which is never printed: nor is the name of the file, which may be one by mistake."""
    if file is None:
        found = os.environ.get(PASSWORD_VARIABLE)
        return None if found is None else found.encode()
    if str(file) != "-":
        try:
            content = file.read_bytes()
        except OSError as error:
            raise UsageError(f"the password file cannot be read: {error.strerror}") from None
        return content.split(b"\n", 1)[0].removesuffix(b"\r")
    if sys.stdin.isatty():
        return getpass.getpass("Password: ").encode()
    return sys.stdin.buffer.readline().removesuffix(b"\n").removesuffix(b"\r")


def _tls_context(options: Connection) -> ssl.SSLContext | None:
    if not (options.tls or options.cafile or options.cert or options.insecure):
        if options.key:
            raise UsageError("--key needs --cert")
        return None
    try:
        context = ssl.create_default_context(cafile=options.cafile)
        context.check_hostname = not options.insecure
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
    except OSError as error:  # SSLError is one
        raise UsageError(f"the files for TLS cannot be used: {error.strerror or error}") from None
    return context
