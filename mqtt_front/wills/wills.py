"""Wills: messages of clients whose connection ended without DISCONNECT, published at once or after their delay.

A will belongs to one connection of a client: a new connection of the same client cancels a delayed one. It is durable
from before the CONNACK until its message is in the log, so a server that is killed publishes it after its restart.
Before it is published, the end of the log is stored with it, and its record has its key: the next start searches the
log from there, so a kill in between does not publish it twice."""

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from mqtt_front.codec.packets import Will
from mqtt_front.codec.properties import write_block
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.timer_queue import TimerQueue
from mqtt_front.runtime.user_share import Shares, Tally
from mqtt_front.runtime.write_behind import WriteBehind
from mqtt_front.wills.will_document import StoredWill, UndecodableWill, decode_will, encode_will
from mqtt_front.wills.will_records import Place
from timestone.fronts import Documents

SPACE = "mqtt.will"
_RETRY_S = 5.0

Publish = Callable[[str, str, Will, Callable[[bool], None]], None]
"""Arguments: key, session key, will, and a callback once its message is in the log (True) or could not be stored
(False)."""


class Records(Protocol):
    """Search for wills in the logs; implemented by `WillRecords`."""

    def place(self, topic: str, session_key: str) -> Place | None: ...
    def holds(self, place: Place, topic: str, key: str) -> bool: ...


class KeptWill:
    """Stored will of one connection of a client."""

    __slots__ = ("due_kept_s", "due_s", "is_in_grace", "key", "place", "session_key", "size_bytes", "will")

    def __init__(self, key: str, session_key: str, will: Will) -> None:
        self.key = key
        self.session_key = session_key
        self.will = will
        self.size_bytes = will_bytes(will)
        self.due_s = 0.0
        """By `PassingTime`."""
        self.due_kept_s = 0.0
        """The same as stored: seconds since 1970; 0 while the client is connected."""
        self.place: Place | None = None
        """Where its record is, once it may have been published."""
        self.is_in_grace = False
        """Whether it was the server that its client has lost: it is not published if the client is back in time."""


class Wills:
    """Wills of a front. All methods but `load` are for the event-loop thread."""

    def __init__(
        self,
        publish: Publish,
        records: Records,
        documents: Documents,
        loop: Loop,
        executor: Executor,
        *,
        log: logging.Logger,
        time: PassingTime,
        shares: Shares | None = None,
        bytes_limit: int = 1 << 60,
        grace_s: float = 0.0,
    ) -> None:
        """grace_s: time after `load` for clients that an earlier server has lost."""
        self._shares = Shares() if shares is None else shares
        self._bytes_limit = bytes_limit
        self._grace_s = grace_s
        self.sizes = Tally()
        """Bytes of the stored wills, by owner."""
        self._kept_bytes: Counter[str] = Counter()
        """The same by session key."""
        self._publish = publish
        self._records = records
        self._documents = documents
        self._writer = WriteBehind(documents, SPACE, loop, executor, log=log)
        self._loop = loop
        self._log = log
        self._time = time
        self._numbers = itertools.count(int(time.wall_s() * 1e9))  # above those of earlier processes
        self._waiting: dict[str, list[KeptWill]] = {}
        self._schedule: TimerQueue[KeptWill] = TimerQueue()
        """Delayed wills, by due time."""

    @property
    def saved(self) -> bool:
        """Return whether nothing waits to be written."""
        return self._writer.saved

    def load(self) -> None:
        """Read the wills of an earlier process. Clients that were connected when it ended count as disconnected now.
        Reads the disk: call before the loop serves clients."""
        changed: dict[str, bytes | None] = {}
        for key, document in self._documents.items(SPACE).items():
            try:
                stored = decode_will(document)
            except UndecodableWill as error:
                self._log.error("will %r is left alone: %s", key, error)
                continue
            kept = KeptWill(key, stored.session_key, stored.will)
            self._count(kept, 1)
            kept.due_kept_s, kept.place = stored.due_s, stored.place
            delay_s = _delay_s(stored.will, stored.session_expiry_s)
            # An older version has noted a time since 1970, which is later than that.
            left_s: float = min(delay_s, stored.due_s - self._time.kept_s())
            if kept.place is not None:
                if self._records.holds(kept.place, stored.will.topic, key):
                    changed[key] = None
                    self._count(kept, -1)
                    continue
                left_s = 0
            elif not stored.due_s and self._grace_s:
                # Its document stays that of a connected client: a further server begins the time again.
                left_s, kept.is_in_grace = max(delay_s, self._grace_s), True
            elif not stored.due_s:
                left_s = delay_s
                kept.due_kept_s = self._time.kept_s() + delay_s
                changed[key] = encode_will(stored._replace(due_s=kept.due_kept_s))
            self._wait(kept, left_s)
        if changed:
            self._documents.put_many(SPACE, changed)

    def keep(self, session_key: str, will: Will, session_expiry_s: int, then: Callable[[], None]) -> KeptWill:
        """Store the will of a new connection; `then` is called once it is durable."""
        kept = KeptWill(f"{session_key}\0{next(self._numbers):x}", session_key, will)
        self._count(kept, 1)
        self._writer.write(kept.key, _document(kept, session_expiry_s), then)
        return kept

    def revoke(self, kept: KeptWill) -> None:
        """Remove a will that is not to be published, or is."""
        self._count(kept, -1)
        self._writer.write(kept.key, None)

    def left(self, kept: KeptWill, session_expiry_s: int) -> None:
        """Schedule the will of a connection that ended without DISCONNECT: after its delay or at the end of the
        session, whichever is first."""
        delay_s = _delay_s(kept.will, session_expiry_s)
        if delay_s == 0:
            self._publish_now(kept)
            return
        kept.due_kept_s = self._time.kept_s() + delay_s
        self._writer.write(kept.key, _document(kept, session_expiry_s))
        self._wait(kept, delay_s)

    def returned(self, session_key: str, *, session_continues: bool) -> None:
        """Cancel the delayed will of a client that has reconnected, unless that ended its session [MQTT-3.1.3-9] or the
        will was due before."""
        for kept in self._waiting.pop(session_key, ()):
            self._schedule.call_off(kept)
            if (session_continues or kept.is_in_grace) and kept.due_s > self._time.now_s():
                self.revoke(kept)
            else:
                self._publish_now(kept)

    def publish_due(self) -> None:
        """Publish the wills that are due."""
        for kept in self._schedule.take(self._time.now_s()):
            waiting = self._waiting[kept.session_key]
            waiting.remove(kept)
            if not waiting:
                del self._waiting[kept.session_key]
            self._publish_now(kept)

    def _wait(self, kept: KeptWill, left_s: float) -> None:
        kept.due_s = self._time.now_s() + left_s
        self._waiting.setdefault(kept.session_key, []).append(kept)
        self._schedule.set(kept, kept.due_s)

    def _publish_now(self, kept: KeptWill) -> None:
        if kept.place is None:
            kept.place = self._records.place(kept.will.topic, kept.session_key)
            if kept.place is not None:
                self._writer.write(kept.key, _document(kept, 0), functools.partial(self._publish_now, kept))
                return
        self._publish(kept.key, kept.session_key, kept.will, functools.partial(self._published, kept))

    def _published(self, kept: KeptWill, stored: bool) -> None:
        if stored:
            self.revoke(kept)
        else:
            self._loop.call_later(_RETRY_S, self._publish_now, kept)

    def over(self, session_key: str, will: Will) -> tuple[str, str] | None:
        """Return the setting that forbids a client this will, and the reason in words; None if none does. It replaces
        those of earlier connections of its client."""
        more = will_bytes(will) - self._kept_bytes.get(session_key, 0)
        if self.sizes.total + more > self._bytes_limit:
            return "will_bytes", f"will_bytes is {self._bytes_limit}"
        if self.sizes.of(self._shares.owner(session_key)) + more > self._shares.of(self._bytes_limit):
            return "user_share_percent", self._shares.describe("will_bytes", self._bytes_limit)
        return None

    def _count(self, kept: KeptWill, sign: int) -> None:
        """Count a stored will, or one less."""
        self.sizes.add(self._shares.owner(kept.session_key), sign * kept.size_bytes)
        self._kept_bytes[kept.session_key] += sign * kept.size_bytes
        if not self._kept_bytes[kept.session_key]:
            del self._kept_bytes[kept.session_key]


def will_bytes(will: Will) -> int:
    """Return the size of a will for the limit on bytes: topic, properties and payload."""
    return len(will.topic.encode()) + len(write_block(will.properties)) + len(will.payload)


def _delay_s(will: Will, session_expiry_s: int) -> int:
    return min(will.properties.will_delay_interval or 0, session_expiry_s)


def _document(kept: KeptWill, session_expiry_s: int) -> bytes:
    return encode_will(StoredWill(kept.session_key, kept.will, session_expiry_s, kept.due_kept_s, kept.place))
