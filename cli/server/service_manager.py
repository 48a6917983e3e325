"""Messages to the service manager that started the server: systemd, or another with its protocol, sd_notify(3).

One datagram a message, to the socket that `NOTIFY_SOCKET` names; none if it is not set."""

import logging
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"
_PATIENCE_US = 30_000_000
"""Additional time for opening a store, counted from each message."""
_log = logging.getLogger("timestone.serve")


class ServiceManager:
    """Service manager that waits for the server to be ready. A lost message has no other effect."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get(VARIABLE, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def opening(self, folder: str, done: int, count: int) -> None:
        """Report progress of opening a store, so that the service manager extends its timeout."""
        self._tell(
            f"EXTEND_TIMEOUT_USEC={_PATIENCE_US}",
            f"STATUS=opening {folder}: {done} of {count} segments looked at",
        )

    def ready(self, status: str) -> None:
        """Report that clients can connect."""
        self._tell("READY=1", f"STATUS={status}")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as messages:
                messages.setblocking(False)
                messages.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.warning("the service manager cannot be notified (%s): %s", VARIABLE, error)
