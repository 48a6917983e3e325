"""What the requests of the control socket do. Knows no socket; called in the event loop, in slices of at most
`PAGE_COUNT` connections."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from timestone.config import LogConfig
from timestone.fronts import Administered, Guarded
from timestone.log import Log
from timestone.reading.named_readers import Commitment, ReaderId
from timestone.store import Store

from ..process.version import timestone_version
from .arguments import InvalidRequest, log_of, number, optional, text
from .operations import OPERATIONS, Operations

PAGE_COUNT = 50
"""Most connections in a line, so that the event loop has its own turn after each half of a millisecond."""
_PAGE_CHARACTERS = 1 << 14
"""A page ends with the connection whose names exceed this together: one may have 64 KiB, and six times as much in
JSON."""
_LATEST_LOGS = 1000
_TOPIC_COUNT = 100
"""Most topics in a question."""
_log = logging.getLogger("timestone.control")


Action = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
Audit = Callable[[Mapping[str, Any]], Awaitable[bool]]
"""Records an action of an operator; returns whether it is recorded."""
_CHANGING = frozenset(("disconnect", "configure", "release", "forget", "move")) | OPERATIONS
_NOT_ARGUMENTS = ("version", "request", "by")
_ANSWER_S = 8.0
"""An action that takes longer continues after its reply, which is `{"is_running": true}`."""


class Part(Protocol):
    """Part of the server with figures, such as a front."""

    @property
    def name(self) -> str: ...

    def status(self) -> dict[str, Any]: ...


class Actions:
    """Requests of one server."""

    def __init__(self, store: Store, parts: Sequence[Part], audit: Audit | None = None) -> None:
        """audit: records what changes something, before it is done and how it ended."""
        self._audit = audit
        self._numbers = itertools.count(1)
        self._store = store
        self._parts = parts
        self._fronts: dict[str, Administered] = {
            part.name: part for part in parts if isinstance(part, Administered)
        }
        self._guards = [part for part in parts if isinstance(part, Guarded)]
        self._started_us = time.time_ns() // 1000
        self._operations = Operations(store, parts)
        self._by_name: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "status": self._status,
            "client": self._client,
            "login": self._login,
            "may_read": self._may_read,
            "disconnect": self._disconnect,
            "configure": self._configure,
            "release": self._release,
            "forget": self._forget,
            "move": self._move,
            **self._operations.by_name,
        }
        self._running: set[asyncio.Task[dict[str, Any]]] = set()

    def close(self) -> None:
        """Undo what lasts only as long as the server."""
        self._operations.usual_log_level()

    async def run(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Carry out a request and yield its result, that of `clients` in parts between which the event loop runs.
        Raises InvalidRequest, TimestoneError, OSError."""
        name = request.get("request")
        if name == "clients":
            for page in self._pages():
                yield page
                await asyncio.sleep(0)
            yield {"now_us": time.time_ns() // 1000, "rows": [], "is_last": True}
            return
        action = self._by_name.get(name) if isinstance(name, str) else None
        if action is None:
            names = ", ".join(["clients", *self._by_name])
            raise InvalidRequest(f"unknown request {name!r:.60}: expected one of {names}")
        if name not in _CHANGING:
            yield await action(request)
            return
        task = asyncio.get_running_loop().create_task(self._recorded(str(name), action, request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait({task}, timeout=_ANSWER_S)
        yield await task if done else {"is_running": True}

    async def _recorded(self, name: str, action: "Action", request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request that changes something, recorded before and after."""
        by = request.get("by")
        facts = {
            "action": name,
            "number": next(self._numbers),
            "by": by if isinstance(by, dict) else {"via": "command"},
            "arguments": _shown(request),
        }
        is_recorded = self._audit is not None and await self._audit({**facts, "state": "begun"})
        if by is not None and not is_recorded:
            raise InvalidRequest("the action could not be recorded in timestone.events, so it was not done")
        state = "failed"
        try:
            result = await action(request)
            state = "done"
            return result
        finally:
            if self._audit is not None:
                await self._audit({**facts, "state": state})

    async def _status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        logs = [self._store.log(*log, create=False) for log in self._store.log_names()[:_LATEST_LOGS]]
        return {
            "pid": os.getpid(),
            "server": timestone_version(),
            "started_us": self._started_us,
            "now_us": time.time_ns() // 1000,
            "fronts_with_clients": list(self._fronts),
            "parts": {part.name: part.status() for part in self._parts},
            "logs": [
                {
                    "log": log.name,
                    "partition": log.partition,
                    "start_offset": log.start_offset,
                    "end_offset": log.end_offset,
                }
                for log in logs
            ],
        }

    def _pages(self) -> Iterator[dict[str, Any]]:
        for name, front in self._fronts.items():
            clients = front.clients()
            while page := list(_page(clients)):
                yield {
                    "columns": ["front", *page[0]],
                    "rows": [[name, *row.values()] for row in page],
                    "is_last": False,
                }

    async def _client(self, request: Mapping[str, Any]) -> dict[str, Any]:
        client, user = text(request, "client"), optional(request, "user")
        found = [(guard.name, guard.client(client, user)) for guard in self._guards]
        return {"clients": [{"front": name, **facts} for name, facts in found if facts is not None]}

    async def _login(self, request: Mapping[str, Any]) -> dict[str, Any]:
        user, password, address = (text(request, name) for name in ("user", "password", "address"))
        for guard in self._guards:
            if guard.has_logins:
                return {"is_allowed": await guard.login(user, password, address)}
        return {"is_allowed": False}

    async def _may_read(self, request: Mapping[str, Any]) -> dict[str, Any]:
        user, topics = optional(request, "user"), request.get("topics")
        if (
            not isinstance(topics, list)
            or len(topics) > _TOPIC_COUNT
            or not all(type(one) is str for one in topics)
        ):
            raise InvalidRequest(f"invalid topics: expected a list of up to {_TOPIC_COUNT} texts")
        answers = [guard.may_read(user, topics) for guard in self._guards]
        return {
            "may_read": [all(column) for column in zip(*answers, strict=True)]
            if answers
            else [True] * len(topics)
        }

    async def _disconnect(self, request: Mapping[str, Any]) -> dict[str, Any]:
        front, client = self._front(request), text(request, "client")
        user = optional(request, "user")
        ended = front.disconnect(client, user)
        for row in ended:
            _log.info("disconnected client %r at %s on request", client[:100], row["address"])
        return {"disconnected": list(ended)}

    async def _release(self, request: Mapping[str, Any]) -> dict[str, Any]:
        reader, found = self._reader(request)
        await asyncio.to_thread(
            self._store.commit_readers, {reader: found.offset}, metadata={reader: found.metadata}
        )
        return {"offset": found.offset, "was_pinned": found.pin is not None}

    async def _forget(self, request: Mapping[str, Any]) -> dict[str, Any]:
        reader, found = self._reader(request)
        await asyncio.to_thread(self._store.forget_readers, [reader])
        return {"offset": found.offset}

    async def _move(self, request: Mapping[str, Any]) -> dict[str, Any]:
        reader, found = self._reader(request)
        offset = number(request, "offset", -1)
        await asyncio.to_thread(self._store.commit_readers, {reader: offset}, pin=found.pin)
        return {"before": found.offset, "offset": offset}

    def _reader(self, request: Mapping[str, Any]) -> tuple[ReaderId, Commitment]:
        log = log_of(self._store, [request.get("log"), request.get("partition", 0)])
        reader = ReaderId(log.name, log.partition, text(request, "reader"))
        found = self._store.committed(reader)
        if found is None:
            raise InvalidRequest(f"unknown reader {reader.name!r:.60} of {log.folder.name}")
        return reader, found

    async def _configure(self, request: Mapping[str, Any]) -> dict[str, Any]:
        wanted, settings = request.get("logs"), request.get("settings")
        if not isinstance(settings, dict) or not settings:
            raise InvalidRequest(f"invalid settings: expected an object with some, got {settings!r:.60}")
        if not isinstance(wanted, list) or not wanted:
            raise InvalidRequest(f"invalid logs: expected a list of [name, partition], got {wanted!r:.60}")
        logs = [log_of(self._store, one) for one in wanted]
        for log in logs:
            try:
                log.checked_config(settings)  # for all of them, before the first is changed
            except (ValueError, TypeError) as error:
                raise InvalidRequest(str(error)) from None
        before = [log.config for log in logs]
        await asyncio.to_thread(_configure_all, logs, settings)
        for log in logs:
            _log.info("configured log %s on request: %s", log.folder.name, settings)
        return {
            "logs": [
                {
                    "log": log.name,
                    "partition": log.partition,
                    "before": _values(old, settings),
                    "after": _values(log.config, settings),
                }
                for log, old in zip(logs, before, strict=True)
            ]
        }

    def _front(self, request: Mapping[str, Any]) -> Administered:
        name = text(request, "front")
        if name not in self._fronts:
            raise InvalidRequest(f"unknown front {name!r:.60}: expected one of {', '.join(self._fronts)}")
        return self._fronts[name]


def _page(clients: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    characters = 0
    for row in itertools.islice(clients, PAGE_COUNT):
        yield row
        characters += len(row["client"]) + len(row["user"] or "")
        if characters > _PAGE_CHARACTERS:
            return


def _shown(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request for the audit: of a payload only its size."""
    shown = {key: value for key, value in request.items() if key not in _NOT_ARGUMENTS}
    if isinstance(payload := shown.pop("payload", None), str):
        shown["payload_bytes"] = len(payload) * 3 // 4 - payload[-2:].count("=")
    return shown


def _configure_all(logs: Sequence[Log], settings: Mapping[str, Any]) -> None:
    """Write the catalogue. Not in the event loop's thread."""
    for log in logs:
        log.configure(**settings)


def _values(config: LogConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(config, name) for name in settings}
