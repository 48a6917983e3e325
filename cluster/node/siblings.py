"""Workers of one server: nodes of a machine that give each other the sockets of clients, so that no bytes of these
clients are passed on.

Each worker has a Unix socket to receive from, and one to each other worker, all made by their parent, so that only its
processes have them. What waits in a socket when a worker ends is received by its next process."""

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import Callable, Mapping

_LOGGER = logging.getLogger("timestone.cluster")
_NUMBER = struct.Struct("<H")
EARLY_BYTES_MAX = 16 * 1024
"""Maximum bytes that a client may have sent before its socket is given away."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(4)
_A_TURN = 64
_PAUSE_S = 1.0
"""Others wait for so long after a socket that could not be received."""


class Siblings:
    """The other workers of a server. Event-loop thread only."""

    def __init__(self, own: socket.socket, others: Mapping[str, socket.socket]) -> None:
        """own: what others send to. others: sockets to send to, by the name of the node. All keep the boundaries of
        messages (SOCK_SEQPACKET)."""
        self._own, self._others = own, dict(others)
        self._pause: asyncio.TimerHandle | None = None
        for one in (own, *self._others.values()):
            one.setblocking(False)

    def give(self, node: str, descriptor: int, door: int, early: bytes) -> bool:
        """Give a client's socket to another worker, by the name of its node. The caller closes its own descriptor
        without ending the connection. door: its number. early: what the client has sent. Return False for another
        node, or if the worker cannot take it now."""
        other = self._others.get(node)
        if other is None or len(early) > EARLY_BYTES_MAX:
            return False
        try:
            socket.send_fds(other, [_NUMBER.pack(door), early], [descriptor])
        except OSError:  # too much waits there, or it has ended
            return False
        return True

    def listen(self, taken: Callable[[socket.socket, int, bytes], None]) -> None:
        """Receive from now on. taken: called with the socket of a client, the number of its door, and what it has
        sent."""
        asyncio.get_running_loop().add_reader(self._own, self._receive, taken)

    def stop(self) -> None:
        """Receive no more. May be repeated."""
        if self._pause is not None:
            self._pause.cancel()
        asyncio.get_running_loop().remove_reader(self._own)

    def _receive(self, taken: Callable[[socket.socket, int, bytes], None]) -> None:
        for _ in range(_A_TURN):
            try:
                message, ancillary, _, _ = self._own.recvmsg(
                    _NUMBER.size + EARLY_BYTES_MAX, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except (BlockingIOError, InterruptedError):
                return
            if not message:  # the parent has ended, and this process will
                self.stop()
                return
            if not ancillary:
                _LOGGER.warning("a client was closed: this process may open no more files")
                self.stop()
                self._pause = asyncio.get_running_loop().call_later(_PAUSE_S, self.listen, taken)
                return
            client = socket.socket(fileno=int.from_bytes(ancillary[0][2], sys.byteorder))
            client.setblocking(False)
            (door,) = _NUMBER.unpack_from(message)
            taken(client, door, message[_NUMBER.size :])
