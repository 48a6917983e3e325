"""Client of etcd over its JSON gateway: linearizable reads, one kind of transaction, leases, watches.

httpx is the transport; what etcd means is here. An endpoint that does not answer is followed by the next one. A call
that was sent and not answered raises EtcdUnavailable: a transaction may have taken place then
(docs/decisions/0090-client-of-etcd.md)."""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import httpx

from timestone_cluster.errors import EtcdUnavailable, WatchEnded

CALL_S = 2.0
"""Time for a call. Shorter than a lease, so that one endpoint that hangs does not cost it."""
_WATCH_SILENCE_S = 30.0
_LINE_BYTES = 16 << 20


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
    ) -> Outcome:
        """Put a value in one transaction if the key has this revision (0: does not exist; None: any), if one other key
        was created at a revision, and if another was not. Raises EtcdUnavailable: the outcome is unknown."""

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

    def __init__(self, endpoints: Sequence[str], *, verify: Any = True) -> None:
        """endpoints: URLs, as in http://127.0.0.1:2379. verify: an ssl.SSLContext for https."""
        self._endpoints = list(endpoints)
        timeout = httpx.Timeout(CALL_S, read=CALL_S)
        # Without the proxy of the environment: etcd is never behind one.
        self._http = httpx.AsyncClient(timeout=timeout, verify=verify, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def read(self, prefix: str) -> Picture:
        """See `Coordinator`."""
        answer = await self._call("kv/range", _range_of(prefix))
        pairs = (_pair(one) for one in answer.get("kvs", ()))
        return Picture({pair.key: pair for pair in pairs}, _revision(answer))

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        revision: int | None = None,
        present: tuple[str, int] | None = None,
        absent: tuple[str, int] | None = None,
        lease: int = 0,
    ) -> Outcome:
        """See `Coordinator`."""
        compare: list[dict[str, Any]] = []
        if revision is not None:
            compare.append(_comparison(key, "MOD", "mod_revision", revision, "EQUAL"))
        for other, result in ((present, "EQUAL"), (absent, "NOT_EQUAL")):
            if other is not None:
                compare.append(_comparison(other[0], "CREATE", "create_revision", other[1], result))
        get = {"request_range": {"key": _base64(key.encode())}}
        wanted = {"key": _base64(key.encode()), "value": _base64(value), "lease": str(lease)}
        answer = await self._call(
            "kv/txn", {"compare": compare, "success": [{"request_put": wanted}, get], "failure": [get]}
        )
        last = answer["responses"][-1]["response_range"]
        found = [_pair(one) for one in last.get("kvs", ())]
        return Outcome(bool(answer.get("succeeded")), found[0] if found else None)

    async def delete(self, key: str) -> None:
        """See `Coordinator`."""
        await self._call("kv/deleterange", {"key": _base64(key.encode())})

    async def grant(self, ttl_s: int) -> int:
        """See `Coordinator`."""
        return int((await self._call("lease/grant", {"TTL": str(ttl_s)}))["ID"])

    async def keep_alive(self, lease: int) -> bool:
        """See `Coordinator`."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def revoke(self, lease: int) -> None:
        """See `Coordinator`."""
        await self._call("lease/revoke", {"ID": str(lease)})

    async def watch(self, prefix: str, revision: int) -> AsyncIterator[Sequence[Change]]:
        """See `Coordinator`."""
        wanted = {**_range_of(prefix), "start_revision": str(revision), "progress_notify": True}
        url = f"{self._endpoints[0]}/v3/watch"
        timeout = httpx.Timeout(CALL_S, read=_WATCH_SILENCE_S)
        try:
            async with self._http.stream(
                "POST", url, json={"create_request": wanted}, timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    raise EtcdUnavailable(f"{url}: status {response.status_code}")
                async for line in _lines(response):
                    result = _decoded(line).get("result", {})
                    if result.get("canceled") or "compact_revision" in result:
                        raise WatchEnded(f"etcd ended the watch of {prefix}: {str(result)[:200]}")
                    yield [_change(one) for one in result.get("events", ())]
        except httpx.HTTPError as error:
            self._next_endpoint()
            raise EtcdUnavailable(f"{url}: {error!r}") from error
        raise WatchEnded(f"etcd ended the watch of {prefix}")

    async def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        reason = ""
        for _ in self._endpoints:
            url = f"{self._endpoints[0]}/v3/{path}"
            try:
                response = await self._http.post(url, json=body)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # Nothing was sent, so another endpoint may be asked.
                self._next_endpoint()
                reason = f"{url}: {error!r}"
                continue
            except httpx.HTTPError as error:
                self._next_endpoint()
                raise EtcdUnavailable(f"{url}: {error!r}") from error
            if response.status_code != httpx.codes.OK:
                self._next_endpoint()
                raise EtcdUnavailable(f"{url}: status {response.status_code}: {response.text[:200]}")
            return _decoded(response.text)
        raise EtcdUnavailable(reason or "no endpoint is given")

    def _next_endpoint(self) -> None:
        self._endpoints.append(self._endpoints.pop(0))


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yield lines of bounded length."""
    rest = b""
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > _LINE_BYTES:
            raise EtcdUnavailable(f"a line of a watch has more than {_LINE_BYTES} bytes")
        for line in whole:
            yield line.decode()


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise EtcdUnavailable(f"invalid answer: expected JSON, got {text[:200]!r}") from None
    if not isinstance(found, dict) or "error" in found:
        raise EtcdUnavailable(f"etcd answers with an error: {text[:200]}")
    return found


def _range_of(prefix: str) -> dict[str, str]:
    key = prefix.encode()
    return {"key": _base64(key), "range_end": _base64(key[:-1] + bytes([key[-1] + 1]))}


def _comparison(key: str, target: str, field: str, value: int, result: str) -> dict[str, Any]:
    return {"key": _base64(key.encode()), "target": target, field: str(value), "result": result}


def _pair(one: Mapping[str, Any]) -> KeyValue:
    return KeyValue(
        base64.b64decode(one["key"]).decode(),
        base64.b64decode(one.get("value", "")),
        int(one["create_revision"]),
        int(one["mod_revision"]),
    )


def _change(event: Mapping[str, Any]) -> Change:
    key = base64.b64decode(event["kv"]["key"]).decode()
    found = None if event.get("type") == "DELETE" else _pair(event["kv"])
    return Change(key, found, int(event["kv"]["mod_revision"]))


def _revision(answer: Mapping[str, Any]) -> int:
    return int(answer["header"]["revision"])


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
