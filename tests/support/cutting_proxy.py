"""TCP proxy in front of an HTTP/2 server that cuts its first connection in front of one message."""

import contextlib
import socket
import threading
from typing import Self

_PREFACE_BYTES = 24
_HEAD_BYTES = 9
_MESSAGES = (0, 1)
"""Types of frames that count: DATA and HEADERS."""


class CuttingProxy:
    """Proxy that cuts its first connection in front of the n-th frame with data or headers, counted from 1 over both
    directions. Later connections pass. `was_cut` tells whether there were so many."""

    def __init__(self, address: str, cut_at: int) -> None:
        host, _, port = address.rpartition(":")
        self._server = host, int(port)
        self._left = cut_at
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.was_cut = False
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="proxy")]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        _end(*self._open)
        for thread in self._threads[1:]:
            thread.join()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        is_first = True
        while True:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
            except OSError:
                return
            self._open += (client, server)
            for source, sink, skipped in ((client, server, _PREFACE_BYTES), (server, client, 0)):
                thread = threading.Thread(
                    target=self._pump, args=(source, sink, skipped, is_first), name="proxy"
                )
                self._threads.append(thread)
                thread.start()
            is_first = False

    def _pump(self, source: socket.socket, sink: socket.socket, skipped: int, is_first: bool) -> None:
        held = b""
        with contextlib.suppress(OSError):
            while received := source.recv(1 << 16):
                if not is_first:
                    sink.sendall(received)
                    continue
                held += received
                if skipped and len(held) >= skipped:
                    sink.sendall(held[:skipped])
                    held, skipped = held[skipped:], 0
                while not skipped and len(held) >= _HEAD_BYTES:
                    size = _HEAD_BYTES + int.from_bytes(held[:3])
                    if len(held) < size:
                        break
                    if held[3] in _MESSAGES and self._cuts():
                        _end(source, sink)
                        return
                    sink.sendall(held[:size])
                    held = held[size:]
        _end(source, sink)

    def _cuts(self) -> bool:
        with self._lock:
            self._left -= 1
            self.was_cut = self.was_cut or self._left == 0
            return self._left <= 0


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
