"""Client of etcd over its JSON gateway: linearizable reads, one kind of transaction, leases, watches, logins.

What etcd means is here; `http` is the transport, and `answers` has what it may answer. An endpoint that does not answer
is followed by the next one. A call that was sent and not answered raises EtcdUnavailable: a transaction may have taken
place then (docs/decisions/0090-client-of-etcd.md)."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import msgspec

from timestone_cluster.errors import EtcdUnavailable, WatchEnded
from timestone_cluster.etcd import answers
from timestone_cluster.etcd.answers import decoded
from timestone_cluster.etcd.http import Answer, HttpConnections, NotConnected, words_of

CALL_S = 2.0
"""Time for a call. Shorter than a lease, so that one endpoint that hangs does not cost it."""
_WATCH_SILENCE_S = 30.0
_ANSWER_BYTES = 16 << 20
_OK = 200
_OTHER_LOGIN = ("invalid auth token", "revision of auth store is old")
"""What etcd says of a token that has ended, and of one from before a change of users: nothing was done."""
_FAILED = (OSError, EOFError, ValueError)
T = TypeVar("T")


class Login(NamedTuple):
    """A user of etcd."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class KeyValue(NamedTuple):
    """A key in etcd."""

    key: str
    value: bytes
    created: int
    """Revision at which it was created: tells one life of a key from another."""
    revision: int
    """Revision of its last change."""


class Picture(NamedTuple):
    """All keys with a prefix, as of one revision."""

    pairs: Mapping[str, KeyValue]
    revision: int


class Outcome(NamedTuple):
    """Answer to a transaction."""

    is_done: bool
    found: KeyValue | None
    """What is there now; None for no such key."""


class Change(NamedTuple):
    """A change that a watch reports. found: None for a key that is gone."""

    key: str
    found: KeyValue | None
    revision: int


class Coordinator(Protocol):
    """What the cluster needs of etcd. Implemented by `EtcdClient`."""

    async def read(self, prefix: str) -> Picture:
        """Return all keys with a prefix; linearizable. Raises EtcdUnavailable."""

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        revision: int | None = None,
        present: tuple[str, int] | None = None,
        absent: tuple[str, int] | None = None,
        lease: int = 0,
        also: str | None = None,
        instead: tuple[str, int] | None = None,
    ) -> Outcome:
        """Put a value in one transaction if the key has this revision (0: does not exist; None: any), if one other key
        was created at a revision (0: does not exist), and if another was not. also: a further key, put without a value.
        instead: a further key, which has to have this revision, and is removed. Raises EtcdUnavailable: the outcome is
        unknown."""

    async def delete(self, key: str) -> None:
        """Remove a key, if it is there. Raises EtcdUnavailable: the outcome is unknown."""

    async def grant(self, ttl_s: int) -> int:
        """Return a new lease. Raises EtcdUnavailable."""

    async def keep_alive(self, lease: int) -> bool:
        """Renew a lease; return whether it still exists. Raises EtcdUnavailable."""

    async def revoke(self, lease: int) -> None:
        """End a lease, and with it its keys. Raises EtcdUnavailable."""

    async def close(self) -> None:
        """Close all connections."""

    def watch(self, prefix: str, revision: int) -> AsyncIterator[Sequence[Change]]:
        """Yield the changes of keys with a prefix from a revision on. Raises WatchEnded when it is over: read again
        before the next one; EtcdUnavailable."""


class EtcdClient:
    """etcd at some endpoints. For one event loop."""

    def __init__(
        self, endpoints: Sequence[str], *, verify: ssl.SSLContext | None = None, login: Login | None = None
    ) -> None:
        """endpoints: URLs, as in http://127.0.0.1:2379. verify: for https. login: where etcd has users."""
        self._endpoints = list(endpoints)
        self._login, self._token = login, ""
        self._http = HttpConnections(verify, _ANSWER_BYTES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        self._http.close()

    async def read(self, prefix: str) -> Picture:
        """See `Coordinator`."""
        answer = await self._call("kv/range", _range_of(prefix), answers.Range)
        pairs = map(_pair, answer.kvs)
        return Picture({pair.key: pair for pair in pairs}, answer.header.revision)

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        revision: int | None = None,
        present: tuple[str, int] | None = None,
        absent: tuple[str, int] | None = None,
        lease: int = 0,
        also: str | None = None,
        instead: tuple[str, int] | None = None,
    ) -> Outcome:
        """See `Coordinator`."""
        compare: list[dict[str, Any]] = []
        if revision is not None:
            compare.append(_comparison(key, "MOD", "mod_revision", revision, "EQUAL"))
        for other, result in ((present, "EQUAL"), (absent, "NOT_EQUAL")):
            if other is not None:
                compare.append(_comparison(other[0], "CREATE", "create_revision", other[1], result))
        get = {"request_range": {"key": key.encode()}}
        wanted = [{"key": key.encode(), "value": value, "lease": str(lease)}]
        if also is not None:
            wanted.append({"key": also.encode(), "value": ""})
        success: list[dict[str, Any]] = [{"request_put": one} for one in wanted]
        if instead is not None:
            compare.append(_comparison(instead[0], "MOD", "mod_revision", instead[1], "EQUAL"))
            success.append({"request_delete_range": {"key": instead[0].encode()}})
        success.append(get)
        body = {"compare": compare, "success": success, "failure": [get]}
        answer = await self._call("kv/txn", body, answers.Transaction)
        found = [_pair(one) for one in answer.responses[-1].response_range.kvs]
        return Outcome(answer.succeeded, found[0] if found else None)

    async def delete(self, key: str) -> None:
        """See `Coordinator`."""
        await self._call("kv/deleterange", {"key": key.encode()}, answers.Anything)

    async def grant(self, ttl_s: int) -> int:
        """See `Coordinator`."""
        return (await self._call("lease/grant", {"TTL": str(ttl_s)}, answers.Lease)).ID

    async def keep_alive(self, lease: int) -> bool:
        """See `Coordinator`."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)}, answers.KeptAlive)
        return answer.result.TTL > 0

    async def revoke(self, lease: int) -> None:
        """See `Coordinator`."""
        await self._call("lease/revoke", {"ID": str(lease)}, answers.Anything)

    async def watch(self, prefix: str, revision: int) -> AsyncIterator[Sequence[Change]]:
        """See `Coordinator`."""
        wanted = {**_range_of(prefix), "start_revision": str(revision), "progress_notify": True}
        server, body = self._endpoints[0], msgspec.json.encode({"create_request": wanted})
        try:
            async with self._http.post(server, "/v3/watch", body, self._token) as answer:
                if answer.status != _OK:
                    raise EtcdUnavailable(f"{server}/v3/watch: status {answer.status}")
                lines = _lines(answer)
                while True:
                    async with asyncio.timeout(_WATCH_SILENCE_S):
                        line = await anext(lines, b"")
                    if not line:
                        break
                    result = decoded(line, answers.Watched).result
                    if result.canceled or result.compact_revision:
                        raise WatchEnded(f"etcd ended the watch of {prefix}: {line[:200]!r}")
                    yield [_change(one) for one in result.events]
        except _FAILED as error:
            self._next_endpoint()
            raise EtcdUnavailable(f"{server}/v3/watch: {words_of(error)}") from error
        raise WatchEnded(f"etcd ended the watch of {prefix}")

    async def _call(self, path: str, body: Mapping[str, Any], answer: type[T]) -> T:
        """Ask etcd, and log in before, if need be."""
        login = self._login
        if login is None:
            return decoded(await self._posted(path, body), answer)
        if not self._token:
            await self._log_in(login)
        try:
            found = await self._posted(path, body)
        except EtcdUnavailable as error:
            if not any(text in f"{error}" for text in _OTHER_LOGIN):
                raise
            await self._log_in(login)
            found = await self._posted(path, body)
        return decoded(found, answer)

    async def _log_in(self, login: Login) -> None:
        self._token = ""
        body = {"name": login.user, "password": login.password}
        self._token = decoded(await self._posted("auth/authenticate", body), answers.Token).token

    async def _posted(self, path: str, body: Mapping[str, Any]) -> bytes:
        reason, encoded = "", msgspec.json.encode(body)  # bytes in base64, as etcd takes them
        for _ in self._endpoints:
            server, door = self._endpoints[0], f"/v3/{path}"
            url = server + door
            try:
                async with (
                    asyncio.timeout(CALL_S),
                    self._http.post(server, door, encoded, self._token) as answer,
                ):
                    found = await _body(answer)
            except NotConnected as error:
                self._next_endpoint()
                reason = f"{error}"
                continue
            except _FAILED as error:
                self._next_endpoint()
                raise EtcdUnavailable(f"{url}: {words_of(error)}{_tls_hint(server, error)}") from error
            if answer.status != _OK:
                self._next_endpoint()
                raise EtcdUnavailable(f"{url}: status {answer.status}: {self._reason_of(found)}")
            return found
        raise EtcdUnavailable(reason or "no endpoint is given")

    def _reason_of(self, answer: bytes) -> str:
        """Return why a call was refused, or how else the answer begins, unless it repeats a password."""
        try:
            shown = msgspec.json.decode(answer, type=answers.Refusal).message
        except msgspec.MsgspecError:
            shown = repr(answer[:200].decode(errors="replace").strip())
        return "" if self._login is not None and self._login.password in shown else shown[:200]

    def _next_endpoint(self) -> None:
        self._endpoints.append(self._endpoints.pop(0))


def _tls_hint(server: str, error: Exception) -> str:
    """Return what may be wrong where etcd ends a connection without TLS, as one with TLS does."""
    is_ended = isinstance(error, ConnectionResetError | EOFError)
    return "; an etcd with TLS needs `--ca`" if is_ended and server.startswith("http:") else ""


async def _body(answer: Answer) -> bytes:
    """Return a body of bounded length."""
    found = bytearray()
    async for piece in answer.pieces():
        found += piece
        if len(found) > _ANSWER_BYTES:
            raise EtcdUnavailable(f"an answer has more than {_ANSWER_BYTES} bytes")
    return bytes(found)


async def _lines(answer: Answer) -> AsyncIterator[bytes]:
    """Yield lines of bounded length."""
    rest = b""
    async for piece in answer.pieces():
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > _ANSWER_BYTES:
            raise EtcdUnavailable(f"a line of a watch has more than {_ANSWER_BYTES} bytes")
        for line in whole:
            yield line


def _range_of(prefix: str) -> dict[str, bytes]:
    key = prefix.encode()
    return {"key": key, "range_end": key[:-1] + bytes([key[-1] + 1])}


def _comparison(key: str, target: str, field: str, value: int, result: str) -> dict[str, Any]:
    return {"key": key.encode(), "target": target, field: str(value), "result": result}


def _pair(one: answers.Pair) -> KeyValue:
    return KeyValue(_key(one), one.value, one.create_revision, one.mod_revision)


def _change(event: answers.Event) -> Change:
    found = None if event.type == "DELETE" else _pair(event.kv)
    return Change(_key(event.kv), found, event.kv.mod_revision)


def _key(one: answers.Pair) -> str:
    return one.key.decode(errors="replace")  # of a stranger
