"""TLS as a layer: what the socket brings is decrypted for the link, what the link sends is encrypted.

OpenSSL works on memory here, not on the socket. That lets a refused client read the alert that says why, and whoever
does not speak TLS at all is told apart by the first byte; the event loop's own TLS does neither. Everything happens in
the calls from outside, so a handshake that continues holds nobody up; its deadline is the link's, for CONNECT.
"""

import ssl
from collections.abc import Callable
from typing import Any

from mqtt_front.net.stream_adapter import Arrival, Layer, Receiver
from mqtt_front.net.tls_context import certificate_name
from mqtt_front.net.tls_faults import handshake_fault, no_tls
from mqtt_front.runtime.loop import Transport

HANDSHAKE = "TLS handshake"
_FIRST_BYTES = 4


class TlsLayer(Layer):
    """One connection's TLS. To the socket's transport it is a protocol, to `upper` a transport."""

    __slots__ = (
        "_arrival", "_call_soon", "_certificate_name", "_decrypting", "_incoming", "_name_kind", "_outgoing",
        "_reading", "_tls",
    )  # fmt: skip

    def __init__(
        self,
        upper: Receiver,
        arrival: Arrival,
        context: ssl.SSLContext,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        name_kind: str | None = None,
    ) -> None:
        """`name_kind` says which name of the client's certificate is its user: "cn", "san", or None for neither."""
        super().__init__(upper)
        self._arrival = arrival
        self._call_soon = call_soon
        self._name_kind = name_kind
        self._certificate_name: str | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._decrypting = False
        self._reading = True

    # What the socket's transport calls.

    def connection_made(self, transport: Transport) -> None:
        self._lower = transport
        self._upper.connection_made(self)
        self._arrival.awaited = HANDSHAKE

    def buffer_updated(self, count: int) -> None:
        if self._discards(count):
            return
        received = self._upper.get_buffer(-1)[:count]
        if not self._started:
            self._started = True
            fault = no_tls(bytes(received[:_FIRST_BYTES]))
            if fault is not None:
                self._arrival.turn_away(fault)
        if self._ended:
            return
        self._incoming.write(received)
        if not self._open:
            self._shake_hands()
        if self._open:
            self._decrypt()

    def eof_received(self) -> bool:
        if self._started and not self._open and not self._ended:
            self._arrival.turn_away(f"it left during the {HANDSHAKE}")
        return super().eof_received()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._arrival.turn_away(handshake_fault(error))
            return
        self._flush()
        certificate = self._tls.getpeercert() if self._name_kind is not None else None
        if certificate and self._name_kind is not None:
            self._certificate_name = certificate_name(certificate, self._name_kind)
            if self._certificate_name is None:
                self._arrival.turn_away(f"its certificate has no {self._name_kind} that could be its user")
                return
        self._open = True
        self._arrival.awaited = "CONNECT"

    def _decrypt(self) -> None:
        """Hand decrypted bytes up for as long as there are some and they are wanted."""
        self._decrypting = True
        try:
            more = self._open
            while more and self._reading and not self._ended:
                buffer = self._upper.get_buffer(-1)
                count, more = self._fill(buffer)
                if count:
                    self._upper.buffer_updated(count)
        finally:
            self._decrypting = False
        self._flush()

    def _fill(self, buffer: memoryview) -> tuple[int, bool]:
        """Decrypt as much as the buffer takes; how much that was, and whether there may be more."""
        count, size = 0, len(buffer)
        try:
            while count < size:
                # The stub of the standard library has this overload for sockets only.
                got: int = self._tls.read(size - count, buffer[count:])  # type: ignore[assignment]
                if not got:
                    self._finished()
                    return count, False
                count += got
        except ssl.SSLWantReadError:
            return count, False
        except ssl.SSLError:
            self.abort()  # bytes that were changed on their way: there is nobody to answer to
            return 0, False
        return count, True

    def _finished(self) -> None:
        """The client said that it sends nothing any more. What it sent before is still to be handed up."""
        self._call_soon(self.close)

    # What the link above calls.

    def write(self, data: bytes) -> None:
        """Encrypt and send. Dropped before the handshake is done, when there is nothing to say, and after the end."""
        if not self._open or self._ended:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError:
            self.abort()
            return
        self._flush()

    def _say_goodbye(self) -> None:
        if self._open:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it waits for the client's goodbye, and we do not
        self._flush()

    def pause_reading(self) -> None:
        """Hand nothing up until `resume_reading`. What is decrypted already waits in OpenSSL: one read at most."""
        self._reading = False
        super().pause_reading()

    def resume_reading(self) -> None:
        """Go on. What waited is handed up in a later turn of the loop, as a socket would."""
        if self._reading:
            return
        self._reading = True
        super().resume_reading()
        if not self._decrypting:
            self._call_soon(self._go_on)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "certificate_name":
            return self._certificate_name
        return super().get_extra_info(name, default)

    def _go_on(self) -> None:
        if not self._decrypting and not self._ended:
            self._decrypt()

    def _flush(self) -> None:
        if self._outgoing.pending and self._lower is not None:
            self._lower.write(self._outgoing.read())
