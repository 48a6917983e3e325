"""TLS as a stream adapter: decrypts what the socket receives and encrypts what the client protocol sends.

OpenSSL works on memory buffers here, not on the socket. So a refused client can read the alert with the reason, and
a client that does not speak TLS is recognised by its first byte; the TLS of the event loop does neither. All work
happens in the calls from outside, so a slow handshake blocks nothing; its deadline is the one for CONNECT."""

import ssl
from collections.abc import Callable
from typing import Any

from mqtt_front.net.stream_adapter import Arrival, Receiver, StreamAdapter
from mqtt_front.net.tls_faults import handshake_fault, no_tls
from timestone_access.tls_context import certificate_name

HANDSHAKE = "TLS handshake"
_FIRST_BYTES = 4


class TlsAdapter(StreamAdapter):
    """TLS of one connection: a protocol for the transport of the socket, a transport for `upper`."""

    __slots__ = (
        "_call_soon", "_certificate_name", "_decrypting", "_incoming", "_name_kind", "_outgoing", "_reading", "_tls",
    )  # fmt: skip
    _first = HANDSHAKE

    def __init__(
        self,
        upper: Receiver,
        arrival: Arrival,
        context: ssl.SSLContext,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        name_kind: str | None = None,
    ) -> None:
        """name_kind: name of the client certificate that is the user: "cn", "san", or None."""
        super().__init__(upper, arrival)
        self._call_soon = call_soon
        self._name_kind = name_kind
        self._certificate_name: str | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._decrypting = False
        self._reading = True

    # Called by the transport of the socket.

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
            self._arrival.turn_away(f"the client disconnected during the {HANDSHAKE}")
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
                self._arrival.turn_away(
                    f"the certificate of the client has no {self._name_kind} to use as user name"
                )
                return
        self._open = True
        self._arrival.awaited = "CONNECT"

    def _decrypt(self) -> None:
        """Pass decrypted bytes up while there are some and reading is not paused."""
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
        """Decrypt as much as fits into the buffer. Return the number of bytes and whether more may follow."""
        count, size = 0, len(buffer)
        try:
            while count < size:
                # The stub of the standard library has this overload for sockets only.
                got: int = self._tls.read(size - count, buffer[count:])  # type: ignore[assignment]
                if not got:  # the end of the client's stream; bytes before it are still passed up
                    self._call_soon(self.close)
                    return count, False
                count += got
        except ssl.SSLWantReadError:
            return count, False
        except ssl.SSLError:
            self.abort()  # modified in transit: no peer to answer
            return 0, False
        return count, True

    # Called by the client protocol.

    def write(self, data: bytes) -> None:
        """Encrypt and send. Dropped before the handshake is complete and after the end."""
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
                pass  # the client has not closed its side; the server does not wait for that
        self._flush()

    def pause_reading(self) -> None:
        """Pass nothing up until `resume_reading`. At most one read of decrypted bytes waits in OpenSSL."""
        self._reading = False
        super().pause_reading()

    def resume_reading(self) -> None:
        """Resume. Waiting bytes are passed up in a later turn of the loop, as by a socket."""
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
