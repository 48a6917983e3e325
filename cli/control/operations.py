"""What an operator can have a running server do beside `actions.py`: publish, end and watch sessions, roll and verify
logs, reload files, and log more for a while."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from timestone.errors import TimestoneError
from timestone.fronts import Operated, Reloadable
from timestone.store import Store

from .arguments import InvalidRequest, log_of, number, optional, text

OPERATIONS = frozenset(
    ("end_session", "publish", "delete_retained", "watch", "roll", "scrub", "reload", "log_level")
)
"""The requests of this module; all of them change something, so each is recorded."""
LONGEST_S = 3600
"""Most seconds for which a client is watched or the level of the log is changed."""
DEFAULT_S = 600
_LEVELS = ("debug", "info", "warning", "error")
_log = logging.getLogger("timestone.control")


class Operations:
    """Requests of one server. Event-loop thread only."""

    def __init__(self, store: Store, parts: Sequence[Any]) -> None:
        self._store = store
        self._fronts: dict[str, Operated] = {part.name: part for part in parts if isinstance(part, Operated)}
        by_name = {part.name: part for part in parts}
        self._reloadable = {name: part for name, part in by_name.items() if isinstance(part, Reloadable)}
        self._reload_lock = asyncio.Lock()
        """Of two reloads at once, that with older files could end later."""
        self._is_scrubbing = False
        self._usual_level: int | None = None
        """Level of the log to return to, while it is another one."""
        self._level_ends: asyncio.TimerHandle | None = None
        self.by_name: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "end_session": self._end_session,
            "publish": self._publish,
            "delete_retained": self._delete_retained,
            "watch": self._watch,
            "retained": self._retained,
            "roll": self._roll,
            "scrub": self._scrub,
            "reload": self._reload,
            "log_level": self._log_level,
        }

    async def _end_session(self, request: Mapping[str, Any]) -> dict[str, Any]:
        client, user = text(request, "client"), optional(request, "user")
        found = self._front(request).end_session(client, user)
        if found is None:
            raise InvalidRequest(f"client {client!r:.100} has no session")
        _log.info("ended the session of client %r on request", client[:100])
        return dict(found)

    async def _publish(self, request: Mapping[str, Any]) -> dict[str, Any]:
        topic, qos, retain = text(request, "topic"), number(request, "qos", 1), request.get("retain", False)
        if qos > 2 or type(retain) is not bool:
            raise InvalidRequest("invalid qos or retain: expected 0, 1 or 2, and true or false")
        try:
            payload = base64.b64decode(text(request, "payload"), validate=True)
        except binascii.Error:
            raise InvalidRequest("invalid payload: expected base64") from None
        await self._send(request, topic, payload, qos, retain=retain)
        return {"payload_bytes": len(payload)}

    async def _delete_retained(self, request: Mapping[str, Any]) -> dict[str, Any]:
        topic = text(request, "topic")
        found = self._front(request).retained(topic)
        if found is None:
            raise InvalidRequest(f"topic {topic!r:.200} has no retained message")
        await self._send(request, topic, b"", 1, retain=True)
        return dict(found)

    async def _send(
        self, request: Mapping[str, Any], topic: str, payload: bytes, qos: int, *, retain: bool
    ) -> None:
        try:
            await self._front(request).publish(topic, payload, qos, retain=retain)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    async def _retained(self, request: Mapping[str, Any]) -> dict[str, Any]:
        found = self._front(request).retained(text(request, "topic"))
        return {"retained": None if found is None else dict(found)}

    async def _watch(self, request: Mapping[str, Any]) -> dict[str, Any]:
        client, user = text(request, "client"), optional(request, "user")
        try:
            rows = self._front(request).watch(client, user, _duration_s(request))
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        if not rows:
            raise InvalidRequest(f"no client {client!r:.100} is connected")
        return {"watched": [dict(row) for row in rows]}

    async def _roll(self, request: Mapping[str, Any]) -> dict[str, Any]:
        log = log_of(self._store, [request.get("log"), request.get("partition", 0)])
        await asyncio.to_thread(log.roll)
        return {"end_offset": log.end_offset, "segments": len(log.segment_list.segments)}

    async def _scrub(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._is_scrubbing:
            raise InvalidRequest("the store is being verified already")
        self._is_scrubbing = True
        try:
            damage = await asyncio.to_thread(self._store.scrub)
        finally:
            self._is_scrubbing = False
        _log.info("verified every sealed segment on request: damage in %d", len(damage))
        return {"damaged_segments": len(damage)}

    async def _reload(self, request: Mapping[str, Any]) -> dict[str, Any]:
        failures = []
        async with self._reload_lock:
            for name, part in self._reloadable.items():
                try:
                    await part.reload()
                except (ValueError, OSError, TimestoneError) as error:
                    failures.append(f"{name}: nothing was reloaded: {error}")
        if failures:
            raise InvalidRequest("; ".join(failures))
        return {"reloaded": len(self._reloadable)}

    async def _log_level(self, request: Mapping[str, Any]) -> dict[str, Any]:
        level, duration_s = text(request, "level"), _duration_s(request)
        if level not in _LEVELS:
            raise InvalidRequest(f"invalid level: expected one of {', '.join(_LEVELS)}, got {level!r:.60}")
        root = logging.getLogger()
        if self._level_ends is not None:
            self._level_ends.cancel()
        if self._usual_level is None:
            self._usual_level = root.level
        root.setLevel(level.upper())
        self._level_ends = asyncio.get_running_loop().call_later(duration_s, self.usual_log_level)
        return {"usual": logging.getLevelName(self._usual_level).lower(), "duration_s": duration_s}

    def usual_log_level(self) -> None:
        """Return to the level of the log that the server was started with."""
        if self._level_ends is not None:
            self._level_ends.cancel()
        if self._usual_level is not None:
            logging.getLogger().setLevel(self._usual_level)
        self._usual_level = self._level_ends = None

    def _front(self, request: Mapping[str, Any]) -> Operated:
        name = text(request, "front")
        if name not in self._fronts:
            raise InvalidRequest(f"unknown front {name!r:.60}: expected one of {', '.join(self._fronts)}")
        return self._fronts[name]


def _duration_s(request: Mapping[str, Any]) -> int:
    found = number(request, "duration_s", DEFAULT_S)
    if not 1 <= found <= LONGEST_S:
        raise InvalidRequest(f"invalid duration_s: expected 1 to {LONGEST_S}, got {found}")
    return found
