"""Control socket, side of a command: blocking requests to the server of a store."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from timestone.disk.files import Files
from timestone.disk.lock import is_owned, read_owner
from timestone.errors import NotAStore
from timestone.format.names import CATALOG_NAME, CONTROL_NAME, LOCK_NAME

from ..errors import CommandError
from .protocol import REPLY_BYTES, REQUEST_BYTES, InvalidLine, decode_line, encode_request

_TIMEOUT_S = 20.0


class NoServer(CommandError):
    """No server answers for a store."""


class Refused(CommandError):
    """The server did not carry out a request. `code` is that of the error in its reply."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Caller:
    """Connection to the server of a store. Calls raise NoServer, Refused, OSError."""

    def __init__(self, store: Path, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Connect. Raises NotAStore, NoServer, OSError."""
        self._store = store
        self._received = bytearray()
        self._socket = _connected(store, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a request."""
        self._send(name, arguments)
        return self._result(self._reply())

    def clients(self) -> list[dict[str, Any]]:
        """Return the connected clients of all fronts, each with the key `front`."""
        self._send("clients", {})
        found: list[dict[str, Any]] = []
        while not (page := self._result(self._reply()))["is_last"]:
            found += [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
        return found

    def _send(self, name: str, arguments: Mapping[str, Any]) -> None:
        line = encode_request(name, arguments)
        if len(line) > REQUEST_BYTES:
            raise CommandError(f"the request has {len(line)} bytes, and the server takes {REQUEST_BYTES}")
        try:
            self._socket.sendall(line)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may have said why

    def _reply(self) -> bytes:
        while b"\n" not in self._received:
            if len(self._received) > REPLY_BYTES:
                raise CommandError(f"the server of {self._store} sent more than {REPLY_BYTES} bytes")
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                raise NoServer(
                    f"the server of {self._store} did not answer within {self._socket.gettimeout():g} s"
                ) from None
            except ConnectionResetError:
                data = b""
            if not data:
                raise NoServer(f"the server of {self._store} closed the connection")
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return line

    def _result(self, line: bytes) -> dict[str, Any]:
        try:
            reply = decode_line(line)
            if reply["ok"] is True:
                result: dict[str, Any] = dict(reply["result"])
                return result
            code, message = str(reply["error"]["code"]), str(reply["error"]["message"])
        except InvalidLine as error:
            text = "is of another version" if error.code == "unsupported_version" else "sent an invalid reply"
            raise CommandError(f"the server of {self._store} {text}: use its own `timestone`") from None
        except (KeyError, TypeError, ValueError):
            raise CommandError(f"the server of {self._store} sent an invalid reply") from None
        raise Refused(code, message)


def _connected(store: Path, timeout_s: float) -> socket.socket:
    try:
        folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotAStore(store, "it does not exist") from None
    except NotADirectoryError:
        raise NotAStore(store, "it is not a directory") from None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        # Through a descriptor, because a path may be longer than the 108 bytes of an address.
        connection.connect(f"/proc/self/fd/{folder}/{CONTROL_NAME}")
    except OSError as error:
        connection.close()
        raise _failure(store, error) from None
    finally:
        os.close(folder)
    return connection


def _failure(store: Path, error: OSError) -> Exception:
    if isinstance(error, PermissionError):
        return CommandError(
            f"{store / CONTROL_NAME}: permission denied: only the user of the server and root may use it"
        )
    if not isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return OSError(error.errno, error.strerror, str(store / CONTROL_NAME))
    if is_owned(Files(), store / LOCK_NAME):
        pid, _ = read_owner(Files(), store / LOCK_NAME)
        return NoServer(
            f"process {pid} owns {store}, and it has no control socket: it is not `timestone serve`"
        )
    if not (store / CATALOG_NAME).exists():
        return NotAStore(store, f"it has no {CATALOG_NAME}")
    return NoServer(f"no server runs on {store}")
