"""Wills: the messages of clients that left without a word, published at once or after their delay.

A will belongs to one stay of a client: a new connection of the same client cancels one that is still delayed. It is
durable from before its client is told that it is connected until its message is in the log, so a server that is
killed publishes it when it is back. Before it is published, the end of the log is noted with it, and its record has its
key: at the next start it is looked for from there on, so a kill in the middle does not have it published twice.
"""

import functools
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from mqtt_front.codec.packets import Will
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.timer_queue import Schedule
from mqtt_front.runtime.write_behind import Documents, WriteBehind
from mqtt_front.wills.will_document import StoredWill, UnknownWill, decode_will, encode_will
from mqtt_front.wills.will_records import Place

SPACE = "mqtt.will"
_RETRY_S = 5.0

Publish = Callable[[str, str, Will, Callable[[bool], None]], None]
"""Key, session key, will, and what to call once its message is in the log (True) or could not be stored (False)."""


class Records(Protocol):
    """Finds wills in the logs: what `WillRecords` is."""

    def place(self, topic: str, session_key: str) -> Place | None: ...
    def holds(self, place: Place, topic: str, key: str) -> bool: ...


class KeptWill:
    """A will that is kept: of one stay of one client."""

    __slots__ = ("due_kept_s", "due_s", "key", "place", "session_key", "will")

    def __init__(self, key: str, session_key: str, will: Will) -> None:
        self.key = key
        self.session_key = session_key
        self.will = will
        self.due_s = 0.0
        """By `PassingTime`."""
        self.due_kept_s = 0.0
        """The same on the disk: seconds since 1970; 0 while the client is connected."""
        self.place: Place | None = None
        """Where its record is, once it may have been published."""


class Wills:
    """The wills of a front. All methods but `load` belong to the event loop's thread."""

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
    ) -> None:
        self._publish = publish
        self._records = records
        self._documents = documents
        self._writer = WriteBehind(documents, SPACE, loop, executor, log=log)
        self._loop = loop
        self._log = log
        self._time = time
        self._numbers = itertools.count(int(time.wall_s() * 1e9))  # above those of earlier processes
        self._waiting: dict[str, list[KeptWill]] = {}
        self._schedule: Schedule[KeptWill] = Schedule()
        """Those that wait, by due time."""

    @property
    def saved(self) -> bool:
        """Nothing waits to be written."""
        return self._writer.saved

    def load(self) -> None:
        """Read what an earlier process left. Who was connected when it ended has left now. Touches the disk: call it
        before the loop serves anybody."""
        changed: dict[str, bytes | None] = {}
        for key, document in self._documents.items(SPACE).items():
            try:
                stored = decode_will(document)
            except UnknownWill as error:
                self._log.error("will %r is left alone: %s", key, error)
                continue
            kept = KeptWill(key, stored.session_key, stored.will)
            kept.due_kept_s, kept.place = stored.due_s, stored.place
            delay_s = _delay_s(stored.will, stored.session_expiry_s)
            # An older version has noted a time since 1970, which is later than that.
            left_s: float = min(delay_s, stored.due_s - self._time.kept_s())
            if kept.place is not None:
                if self._records.holds(kept.place, stored.will.topic, key):
                    changed[key] = None
                    continue
                left_s = 0
            elif not stored.due_s:
                left_s = delay_s
                kept.due_kept_s = self._time.kept_s() + delay_s
                changed[key] = encode_will(stored._replace(due_s=kept.due_kept_s))
            self._wait(kept, left_s)
        if changed:
            self._documents.put_many(SPACE, changed)

    def keep(self, session_key: str, will: Will, session_expiry_s: int, then: Callable[[], None]) -> KeptWill:
        """A client with a will comes in; `then` is called once the will is durable."""
        kept = KeptWill(f"{session_key}\0{next(self._numbers):x}", session_key, will)
        self._writer.write(kept.key, _document(kept, session_expiry_s), then)
        return kept

    def revoke(self, kept: KeptWill) -> None:
        """The client said goodbye: nobody will hear of its will."""
        self._writer.write(kept.key, None)

    def left(self, kept: KeptWill, session_expiry_s: int) -> None:
        """The client left without a word: the will is due after its delay or when the session ends, whichever
        is first."""
        delay_s = _delay_s(kept.will, session_expiry_s)
        if delay_s == 0:
            self._publish_now(kept)
            return
        kept.due_kept_s = self._time.kept_s() + delay_s
        self._writer.write(kept.key, _document(kept, session_expiry_s))
        self._wait(kept, delay_s)

    def returned(self, session_key: str, *, session_continues: bool) -> None:
        """The client is back: a delayed will is off, unless its session ended by that [MQTT-3.1.3-9] or its time had
        come before."""
        for kept in self._waiting.pop(session_key, ()):
            self._schedule.call_off(kept)
            if session_continues and kept.due_s > self._time.now_s():
                self.revoke(kept)
            else:
                self._publish_now(kept)

    def publish_due(self) -> None:
        """Publish the wills whose time has come."""
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
            self._writer.write(kept.key, None)
        else:
            self._loop.call_later(_RETRY_S, self._publish_now, kept)


def _delay_s(will: Will, session_expiry_s: int) -> int:
    return min(will.properties.will_delay_interval or 0, session_expiry_s)


def _document(kept: KeptWill, session_expiry_s: int) -> bytes:
    return encode_will(StoredWill(kept.session_key, kept.will, session_expiry_s, kept.due_kept_s, kept.place))
