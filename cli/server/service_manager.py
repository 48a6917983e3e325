"""What the service manager that started us is told: systemd, or another with its protocol, sd_notify(3).

One datagram a message, to the socket that `NOTIFY_SOCKET` names; nobody, where it names none.
"""

import logging
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"
_PATIENCE_US = 30_000_000
"""How much longer a store that is being opened may take from each sign of life on."""
_log = logging.getLogger("timestone.serve")


class ServiceManager:
    """Whoever waits for the server to be ready. A message that does not arrive harms nobody but him."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get(VARIABLE, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def opening(self, folder: str, done: int, count: int) -> None:
        """The store takes its time: so many segments of a log have been looked at, and nobody should give up on us."""
        self._tell(
            f"EXTEND_TIMEOUT_USEC={_PATIENCE_US}",
            f"STATUS=opening {folder}: {done} of {count} segments looked at",
        )

    def ready(self, status: str) -> None:
        """Clients can connect."""
        self._tell("READY=1", f"STATUS={status}")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as messages:
                messages.setblocking(False)
                messages.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.warning("the service manager cannot be told (%s): %s", VARIABLE, error)
