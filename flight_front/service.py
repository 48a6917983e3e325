"""Calls of Arrow Flight. Each is admitted, runs in a coroutine of its own, and ends with a status that names the log.

| call | module |
|---|---|
| ListFlights, GetFlightInfo, GetSchema, DoGet | `reading`, and `following` for a DoGet that follows |
| DoPut | `putting`, `records/intake` |
| DoExchange | `exchange` |
| DoAction, ListActions | `actions` |
| Handshake | here: a token for a password |

Flight SQL is not served: there is no SQL engine here."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from logging import Logger
from typing import TYPE_CHECKING, Any, cast

import grpc
import pyarrow as pa
import pyarrow.flight as fl

from flight_front.actions import ACTIONS, FRONT, WAITING_ACTIONS, Target, run_action
from flight_front.calls import Call, Calls
from flight_front.errors import CallRefused, ClientGone, Code, InvalidRequest, refusal, status_text
from flight_front.exchange import Exchange
from flight_front.following import Follower
from flight_front.gateway.batch_memory import BatchMemory
from flight_front.gateway.wire import READ, SERVICE, ForwardedContext, Span, decoded_progress, encoded
from flight_front.messages import ClientMessages, half_closed
from flight_front.putting import Budget, Put, first_batch
from flight_front.readers import HeldReader, Readers
from flight_front.reading import (
    RecordStream,
    existing_log,
    existing_logs,
    flight_info,
    listed_flight,
    offsets_of,
)
from flight_front.records.flight_data import decoded, encoded_action_type, encoded_schema
from flight_front.records.queries import Query, query_of_descriptor, query_of_ticket
from flight_front.settings import FlightSettings
from flight_front.staging.cluster_staging import ClusterStaging
from flight_front.staging.parts import Staging
from flight_front.staging.store_staging import StoreStaging
from timestone.errors import NotLeader
from timestone.fronts import ClusterNode
from timestone.log import Log
from timestone.store import Store
from timestone_access.rights import Right

if TYPE_CHECKING:
    from timestone.replication.replicated_log import ReplicatedLog

Method = Callable[[Call, Any], Awaitable[None]]


class FlightService:
    """The service of one store. Event-loop thread of the front only."""

    def __init__(
        self, store: Store, settings: FlightSettings, calls: Calls, log: Logger, node: ClusterNode | None
    ) -> None:
        """node: on which it serves, if the store is in a cluster."""
        self._store, self._node = store, node
        self._settings = settings
        self._calls = calls
        self._log = log
        self._is_behind_gateway = False
        self.memory: BatchMemory | None = None
        """Shared with the gateway; None without one."""
        self.submitted = Budget(settings.submitted_bytes)
        self.staging: Staging = (
            StoreStaging(store, settings) if node is None else ClusterStaging(store, node, settings)
        )
        self.readers = Readers(store, node)
        self._target = Target(store, self.staging, self.readers, node)

    def handlers(self, *, for_gateway: bool) -> Sequence[Any]:
        """Return the handlers of all calls, for gRPC. for_gateway: for the one call more of a gateway, too, which is
        believed whose calls it forwards."""
        self._is_behind_gateway = for_gateway
        with_request: dict[str, Method] = {
            "ListFlights": self._list_flights,
            "GetFlightInfo": self._get_flight_info,
            "GetSchema": self._get_schema,
            "DoGet": self._do_get,
            "DoAction": self._do_action,
            "ListActions": self._list_actions,
        }
        streams: dict[str, Method] = {
            "Handshake": self._handshake,
            "DoPut": self._do_put,
            "DoExchange": self._do_exchange,
        }
        # On the wire a call with one message is a stream of one. As a stream it is admitted before its message has
        # come, so that one whose client stays silent is counted, and ended.
        handler = grpc.stream_stream_rpc_method_handler
        handlers = {
            name: handler(self._served(name, self._requested(it))) for name, it in with_request.items()
        }
        handlers |= {name: handler(self._served(name, method)) for name, method in streams.items()}
        found = [grpc.method_handlers_generic_handler(SERVICE, handlers)]
        if for_gateway:
            read = handler(self._served("DoGet", self._requested(self._get_for_gateway)))
            found.append(grpc.method_handlers_generic_handler(READ, {"Read": read}))
        return found

    def _requested(self, method: Method) -> Method:
        """Return a method whose call begins with a message, its request."""

        async def run(call: Call, _: Any) -> None:
            await method(call, await self._messages(call).first())

        return run

    def _messages(self, call: Call) -> ClientMessages:
        return ClientMessages(call.context, self._calls, self._settings.put_idle_ms)

    def _served(self, name: str, method: Method) -> Callable[[Any, Any], Awaitable[None]]:
        async def serve(request: Any, context: Any) -> None:
            call: Call | None = None
            client = (
                ForwardedContext(context, self._settings.listener) if self._is_behind_gateway else context
            )
            try:
                async with self._calls.admit(client, name) as call:
                    await method(call, request)
                return
            except ClientGone:
                return
            except Exception as error:
                ended = refusal(error, None if call is None else call.log)
                if isinstance(error, NotLeader) and call is not None:
                    ended = await self._calls.in_thread(self._elsewhere, call, error)
                if ended is None:
                    self._log.exception("internal error in %s", name)
                    ended = CallRefused(Code.INTERNAL, "internal error; the log of the server has it")
                code, text = ended.code.name, status_text(ended)
                del (
                    ended
                )  # it may be the error, whose traceback has this frame and with it the client's batch
            self._calls.counts.failed[code] += 1
            if name == "Handshake" and not self._is_behind_gateway:  # the gateway waits, too
                await half_closed(context)
            await context.abort(grpc.StatusCode[code], text)

        return serve

    def _elsewhere(self, call: Call, error: NotLeader) -> CallRefused:
        """Return the refusal of an append that is for another node, with its address."""
        assert self._node is not None
        return CallRefused(
            Code.UNAVAILABLE, f"log {call.log}: {error}; {leader_text(self._node, call.partition)}"
        )

    def _opened(self, call: Call, query: Query, right: Right) -> Log:
        """Return an existing log. Raises CallRefused, UnknownLog, NotLeader."""
        call.check(right, query.log)
        call.log, call.partition = query.name, query.partition
        log = existing_log(self._store, self._node, query.log, query.partition)
        if right is Right.WRITE and self._node is not None:
            cast("ReplicatedLog", log).check_leads()
        return log

    async def _handshake(self, call: Call, _: Any) -> None:
        token = self._calls.token(call.identity)
        await call.context.send_initial_metadata((("authorization", f"Bearer {token}"),))
        await half_closed(call.context)

    async def _list_flights(self, call: Call, _: Any) -> None:
        for log in existing_logs(self._store, self._node):
            if call.rights.may(Right.READ, log.name):
                await call.write(await self._calls.in_thread(listed_flight, log))

    async def _get_flight_info(self, call: Call, request: bytes) -> None:
        query = query_of_descriptor(request)
        log = self._opened(call, query, Right.READ)
        await call.write(await self._calls.in_thread(flight_info, log, query, request))

    async def _get_schema(self, call: Call, request: bytes) -> None:
        query = query_of_descriptor(request)
        self._opened(call, query, Right.READ)
        await call.write(fl.SchemaResult(query.schema).serialize())

    async def _do_get(self, call: Call, request: bytes) -> None:
        query = query_of_ticket(request)
        log = self._opened(call, query, Right.READ)
        first, end = await self._calls.in_thread(offsets_of, log, query)
        await call.write(encoded_schema(query.schema))
        await self._get(call, query, log, first, end)

    async def _get_for_gateway(self, call: Call, request: bytes) -> None:
        """Let the gateway read what the files have, and continue from there."""
        query = query_of_ticket(request)
        log = self._opened(call, query, Right.READ)
        first, end = await self._calls.in_thread(offsets_of, log, query)
        await call.write(encoded_schema(query.schema))
        local_end = end if first >= log.local_start_offset else first
        await call.write(encoded(Span(log.name, log.partition, log.id, first, local_end)))
        message = await ClientMessages(call.context, self._calls, None).next()
        if message is None:
            return
        progress = decoded_progress(bytes(message))
        self._calls.counts.records_read += progress.records
        self._calls.counts.bytes_sent += progress.size_bytes
        if progress.offset is not None:
            await self._get(call, query, log, progress.offset, end)

    async def _get(self, call: Call, query: Query, log: Log, first: int, end: int) -> None:
        stream = RecordStream(log, query, first, self._settings.batch_bytes)
        try:
            follower = Follower(stream, log, self._calls, synced=self._settings.visible == "synced")
            await self._send_range(call, follower, end)
            while query.follow:
                await follower.wait()
                await self._send(call, await follower.next())
        finally:
            stream.close()
            self._calls.counts.records_read += stream.record_count

    async def _send_range(self, call: Call, follower: Follower, end: int) -> None:
        """Send a range; the next batch is read while one is sent, so that two are in memory."""
        reading = asyncio.ensure_future(follower.next(end))
        try:
            while True:
                message = await reading
                ended = follower.stream.reader.offset >= end
                if not ended:
                    reading = asyncio.ensure_future(follower.next(end))
                await self._send(call, message)
                if ended:
                    return
        finally:
            reading.cancel()

    async def _send(self, call: Call, message: bytes) -> None:
        if message:
            self._calls.counts.bytes_sent += len(message)
            await call.write(message)

    async def _do_put(self, call: Call, _: Any) -> None:
        messages = self._messages(call)
        descriptor, schema = first_batch(await messages.first())
        query = query_of_descriptor(descriptor)
        log = self._opened(call, query, Right.WRITE)
        put = Put(
            call,
            messages,
            self._calls,
            query,
            log,
            self._store,
            self.staging,
            self._settings,
            self.submitted,
        )
        if self.memory is None:
            await put.run(schema)
            return
        grant = await call.context.grant(self.memory)
        try:
            await put.run(schema)
        finally:
            grant.close()

    async def _do_exchange(self, call: Call, _: Any) -> None:
        messages = self._messages(call)
        first = decoded(await messages.first())
        query = query_of_descriptor(first.descriptor)
        if query.end is not None:
            raise InvalidRequest("invalid command: an exchange follows the log and has no `to`")
        log = self._opened(call, query, Right.READ)
        if query.reader is not None:
            call.check_group(query.reader)
        stream, held = await self._calls.in_thread(self._exchanged, log, query)
        try:
            await call.write(encoded_schema(query.schema))
            follower = Follower(stream, log, self._calls, synced=self._settings.visible == "synced")
            await Exchange(call, self._calls, follower, held).run(first.metadata)
        finally:
            stream.close()
            if held is not None:
                held.close()
            self._calls.counts.records_read += stream.record_count

    def _exchanged(self, log: Log, query: Query) -> tuple[RecordStream, HeldReader | None]:
        """Return the records of an exchange, from where its reader has committed, and the reader, if it has a name."""
        held = None if query.reader is None else HeldReader(self.readers, log, query.reader)
        try:
            if held is not None and held.committed is not None:
                start = held.committed.offset
            else:
                start, _end = offsets_of(log, query)
            return RecordStream(log, query, start, self._settings.batch_bytes), held
        except BaseException:
            if held is not None:
                held.close()
            raise

    async def _do_action(self, call: Call, request: bytes) -> None:
        try:
            action = fl.Action.deserialize(request)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidRequest(f"invalid action: {error}") from None
        body = bytes(action.body) if action.body is not None else b""
        run = self._calls.in_spool_thread if action.type in WAITING_ACTIONS else self._calls.in_thread
        answer = await run(run_action, self._target, call, action.type, body)
        await call.write(fl.Result(json.dumps(answer).encode()).serialize())

    async def _list_actions(self, call: Call, _: Any) -> None:
        for kind, action in ACTIONS.items():
            await call.write(encoded_action_type(kind, action.description))


def leader_text(node: ClusterNode, shard: int) -> str:
    """Return a sentence about who leads a shard. Blocks."""
    places = node.places(FRONT)
    shards = places["shards"]
    leader = shards[shard]["leader"] if shard < len(shards) else None
    if leader is None:
        return "no node leads it now: try again"
    found = places["nodes"][leader]
    return f"append at {found['address'] or 'node ' + found['name'] + ', which serves no Flight'}, which leads it"
