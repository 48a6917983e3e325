"""What gateway and server say to each other: the client behind a call, and the range of a read.

The server listens for its gateway on a Unix socket in a folder that only this user may enter. Beside the calls of
clients there is one more, `READ`:

    gateway                          server
    ticket                  ->
                            <-       schema
                            <-       Span: the log, and the offsets that the files have
    Progress: what was read ->
                            <-       batches from there on, or the status of the call

A DoPut that is admitted is answered with metadata that grants slots of `batch_memory` to it; the gateway may then send
a reference in place of a batch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flight_front.gateway.batch_memory import BatchMemory, Grant
from flight_front.settings import ListenerSettings

SERVICE = "arrow.flight.protocol.FlightService"
READ = "timestone.flight.Gateway"
"""Service of the call `Read`."""
_CLIENT_KEY = "timestone-client-bin"
_SLOTS_KEY = "timestone-slots-bin"
_NAMES = {"cn": "x509_common_name", "san": "x509_subject_alternative_name"}


class Span(NamedTuple):
    """Offsets [first, end) for the gateway to read from the files of a log; empty for none."""

    log: str
    partition: int
    log_id: int
    first: int
    end: int


class Progress(NamedTuple):
    """What the gateway has sent to the client: where the server continues, or None if the client is gone."""

    offset: int | None
    records: int
    size_bytes: int


def encoded(values: Span | Progress) -> bytes:
    """Return the message of a span or a progress."""
    return json.dumps(values).encode()


def decoded_span(message: bytes) -> Span:
    """Return a span of the server."""
    return Span(*json.loads(message))


def decoded_progress(message: bytes) -> Progress:
    """Return a progress of the gateway."""
    return Progress(*json.loads(message))


def forwarded(context: Any, settings: ListenerSettings) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata that names the client of a call to the server. Of the client's own, only its credentials are
    passed."""
    key = _NAMES.get(settings.user_from)
    names = [] if key is None else context.auth_context().get(key, ())
    client = {"peer": context.peer(), "names": [name.hex() for name in names]}
    secrets = [(name, value) for name, value in context.invocation_metadata() if name == "authorization"]
    return (*secrets[:1], (_CLIENT_KEY, json.dumps(client).encode()))


def granted(slots: Sequence[int]) -> tuple[tuple[str, bytes], ...]:
    """Return the metadata that grants slots to a call."""
    return ((_SLOTS_KEY, bytes(slots)),)


def granted_slots(metadata: Iterable[tuple[str, Any]]) -> list[int]:
    """Return the slots in the metadata of a call; empty without any."""
    return [slot for name, value in metadata if name == _SLOTS_KEY for slot in value]


class ForwardedContext:
    """Context of a call that the gateway has forwarded: its client is the one behind the gateway."""

    def __init__(self, context: Any, settings: ListenerSettings) -> None:
        self._key = _NAMES.get(settings.user_from)
        metadata = dict(context.invocation_metadata())
        client = json.loads(metadata[_CLIENT_KEY])
        self._peer: str = client["peer"]
        self._names = [bytes.fromhex(name) for name in client["names"]]
        self.invocation_metadata = context.invocation_metadata
        self.read, self.write = context.read, context.write
        self.send_initial_metadata = context.send_initial_metadata

    async def grant(self, memory: BatchMemory) -> Grant:
        """Let the gateway send batches of this call through memory; `read` returns views of them. The caller closes
        the grant."""
        grant, read = Grant(memory), self.read

        async def read_batch() -> Any:
            message = await read()
            return grant.batch(message) if isinstance(message, bytes) else message

        self.read = read_batch
        try:
            await self.send_initial_metadata(granted(grant.slots))
        except BaseException:
            grant.close()
            raise
        return grant

    def peer(self) -> str:
        """Return the address of the client, in the form of gRPC."""
        return self._peer

    def auth_context(self) -> Mapping[str, list[bytes]]:
        """Return the names in the verified certificate of the client."""
        return {} if self._key is None else {self._key: self._names}
