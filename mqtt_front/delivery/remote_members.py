"""Members of shared subscriptions whose homes are elsewhere in a cluster: their homes ask for records of the logs that
this one leads, and get offsets, which they read in their own copies. What is to be delivered exactly once is saved here
before. The other side is `feeds.remote_group`."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mqtt_front.feeds.group_store import Groups, home_key, home_of
from mqtt_front.feeds.shared_feed import MemberCursor
from mqtt_front.feeds.shared_group import SharedGroup
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from timestone.disk.json_document import integer, integers, json_object
from timestone.errors import CorruptRecord, OffsetOutOfRange, StoreClosed
from timestone.fronts import Correspondent
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone_access.throttled_log import ThrottledLog

_STEP_BYTES = 1 << 20
_SCAN_RECORDS = 65_536
_ROOM = 1024
"""Most offsets that one request gets."""
_AWAY_S = 10.0
"""So long a home without a connection keeps what its members have."""
_RETRY_S = 1.0

Save = Callable[[Callable[[], None]], None]
"""Calls a function once all groups are saved as they are now, in the order of the calls."""
Read = Callable[[Callable[[], Batch], Callable[[Batch | Exception], None]], None]
"""Runs a function that may read the disk, in a thread, and passes its result to another one in the event loop."""


@dataclass(eq=False)
class _Request:
    """A member elsewhere waits for records: a member of the group until it gets some."""

    group: SharedGroup
    home: "_Home"
    room: int
    on_wake: Callable[["_Request"], None]
    once: bool
    """Whether what it gets is to be delivered exactly once."""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.cursor = MemberCursor(self, self.group)

    @property
    def takes_part(self) -> bool:
        return not self.is_over

    def wake(self) -> None:
        self.on_wake(self)


class _Home:
    """A home with members here."""

    def __init__(self, number: int) -> None:
        self.key = home_key(number)
        self.correspondent: Correspondent | None = None
        self.connection = 0
        """Number of its first message on this connection."""
        self.heard = self.saved = 0
        """Number of its last message, and of the one up to which it knows that all is saved, or will."""
        self.away_s = time.monotonic()
        self.connected: dict[SharedGroup, int] = {}
        self.requests: dict[SharedGroup, set[_Request]] = {}

    def part(self) -> None:
        """Take nothing more on this connection."""
        self.correspondent, self.away_s = None, time.monotonic()
        for group in list(self.connected):
            self.count(group, 0)

    def end_requests(self, group: SharedGroup) -> None:
        """Drop what its members have asked for."""
        for request in self.requests.pop(group, ()):
            request.is_over = True
            group.rest(request)

    def count(self, group: SharedGroup, connected: int) -> None:
        """Note how many of its members are connected."""
        group.count(connected, self.connected.get(group, 0))
        self.connected[group] = connected
        if not connected:
            del self.connected[group]
            self.end_requests(group)


class RemoteMembers:
    """Members elsewhere of the groups of one home. Event-loop thread only."""

    def __init__(
        self,
        loop: Loop,
        groups: Groups,
        logs: Mapping[str, Log],
        read: Read,
        save: Save,
        log: ThrottledLog,
    ) -> None:
        """logs: those that this home leads, by name."""
        self._loop, self._groups, self._logs, self._log = loop, groups, logs, log
        self._read, self._save = read, save
        self._homes: dict[int, _Home] = {}
        self._wakes: Mailbox[_Request] = Mailbox(loop, self._woken)
        self._is_open = False

    def open(self) -> None:
        """Assign records from now on."""
        self._is_open = True
        for number in {home_of(key) for group in self._own for key in (*group.members, *group.held)} - {None}:
            assert number is not None
            self._homes[number] = _Home(number)

    def close(self) -> None:
        """Assign nothing any more."""
        self._is_open = False

    @property
    def _own(self) -> list[SharedGroup]:
        return [group for group in self._groups if group.has_place]

    def tick(self) -> None:
        """Have homes know what is saved, and give what those have whose connection has ended some time ago to other
        members, but for what is to be delivered exactly once."""
        for home in self._homes.values():
            if home.correspondent is not None:
                if home.correspondent.is_open:
                    if home.saved < home.heard:
                        home.saved = home.heard
                        self._send_saved(home, {"saved": home.heard})
                    continue
                home.part()
            if time.monotonic() >= home.away_s + _AWAY_S:
                home.away_s = float("inf")
                for group in self._own:
                    group.take_back(home.key, group.held.get(home.key, ()))

    # What homes say.

    def heard(self, number: int, data: bytes, correspondent: Correspondent) -> None:
        """Handle a message of a home."""
        if not self._is_open:
            return  # it will ask again
        try:
            message = json_object(data)
            connection, entries = integer(message["connection"]), message["groups"]
            heard = integer(message["number"])
            home = self._homes.setdefault(number, _Home(number))
            if message.get("is_first", False):
                home.correspondent, home.connection, home.saved = correspondent, connection, 0
                self._agree(home, entries)
                correspondent.send(json.dumps({"connection": connection}).encode())
            elif home.correspondent is correspondent and home.connection == connection:
                for entry in entries:
                    self._update(home, entry)
            else:
                return
            home.heard = heard
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._log.warn(
                f"home {number}",
                f"shared subscriptions of home {number}: a message is not understood; others get the records until "
                f"its node has this version: {error!r:.300}",
            )
            found = self._homes.get(number)
            if found is not None and found.correspondent is correspondent:
                found.part()
                correspondent.send(json.dumps({"connection": found.connection, "agree": True}).encode())

    def _agree(self, home: _Home, entries: list[Any]) -> None:
        for group in list(home.connected):
            home.count(group, 0)
        known = set()
        for entry in entries:
            joined = self._joined(home, entry)
            if joined is not None:
                known.add(joined)
                held, done = set(integers(entry["held"])), set(integers(entry["done"]))
                joined.agree(home.key, held, done, integer(entry["unsure_below"]))
                self._waits(home, joined, entry)
        for group in self._own:
            if home.key in group.members and group not in known:
                self._leave(home, group)

    def _update(self, home: _Home, entry: dict[str, Any]) -> None:
        group = self._joined(home, entry)
        if group is None:
            return
        group.settle(home.key, integers(entry["done"]))
        group.take_back(home.key, integers(entry["returned"]), integers(entry["again"]))
        if entry.get("is_over", False):
            self._leave(home, group)
        else:
            self._waits(home, group, entry)

    def _joined(self, home: _Home, entry: dict[str, Any]) -> SharedGroup | None:
        """Return the group of a message, of which the home is a member from now on."""
        log, topic_filter = self._logs.get(entry["log"]), str(entry["filter"])
        if log is None:
            return None
        if entry.get("is_over", False):
            return self._groups.find(log, topic_filter)
        group = self._groups.get(log, topic_filter, integer(entry["start"]), owner=str(entry["owner"]))
        if home.key not in group.members:
            self._groups.joined(group, home.key)
        return group

    def _leave(self, home: _Home, group: SharedGroup) -> None:
        home.count(group, 0)
        group.take_back(home.key, group.had_by(home.key))
        self._groups.leave(group, home.key)

    def _waits(self, home: _Home, group: SharedGroup, entry: dict[str, Any]) -> None:
        connected = integer(entry["connected"])
        home.count(group, connected)
        for room in integers(entry["asks"]) if connected else ():
            room = max(1, min(room, _ROOM))
            request = _Request(group, home, room, self._wakes.put, bool(entry["once"]))
            home.requests.setdefault(group, set()).add(request)
            self._wakes.put(request)

    # What they get.

    def _woken(self, requests: list[_Request]) -> None:
        for request in requests:
            if self._is_open and not request.is_over:
                self._serve(request)

    def _serve(self, request: _Request) -> None:
        in_memory = request.cursor.prepare()
        if in_memory:
            try:
                self._took(request, self._records(request))
            except Exception as error:
                self._took(request, error)
        elif in_memory is not None:
            self._read(lambda: self._records(request), lambda outcome: self._took(request, outcome))

    @staticmethod
    def _records(request: _Request) -> Batch:
        return request.cursor.read(max_records=request.room, max_bytes=_STEP_BYTES, max_scan=_SCAN_RECORDS)

    def _took(self, request: _Request, outcome: Batch | Exception) -> None:
        group, home, returned = request.group, request.home, request.cursor.returned
        if request.is_over or not self._is_open:
            if group.busy is request:
                group.busy = None
                group.stir()
            return
        if isinstance(outcome, Exception):
            self._failed(request, outcome)
            return
        batch = group.took(outcome, returned)
        offsets: list[int] = batch.offsets.tolist()
        if not offsets:
            if not (request.cursor.caught_up and request.cursor.park()):
                self._wakes.put(request)
            return
        request.is_over = True
        home.requests.get(group, set()).discard(request)
        group.give(home.key, offsets, once=request.once)
        again_below = offsets[-1] + 1 if group.repeats(returned) else group.assigned_below
        message: dict[str, Any] = {"log": group.log.name, "filter": group.topic_filter, "offsets": offsets}
        message |= {"again_below": again_below, "once": request.once}
        if request.once:
            self._send_saved(home, message)
        else:
            self._send(home, message)

    def _send_saved(self, home: _Home, message: dict[str, Any]) -> None:
        """Send a message on this connection once the groups are saved."""
        correspondent, connection = home.correspondent, home.connection

        def saved() -> None:
            if self._is_open and home.correspondent is correspondent and home.connection == connection:
                self._send(home, message)

        self._save(saved)

    @staticmethod
    def _send(home: _Home, message: dict[str, Any]) -> None:
        assert home.correspondent is not None
        message = {"connection": home.connection, **message}
        home.correspondent.send(json.dumps(message, separators=(",", ":")).encode())

    def _failed(self, request: _Request, error: Exception) -> None:
        """Continue behind records that cannot be read."""
        group = request.group
        if isinstance(error, StoreClosed):
            group.busy = None
            return
        if isinstance(error, OffsetOutOfRange | CorruptRecord):
            offset = error.start if isinstance(error, OffsetOutOfRange) else error.next_offset
            group.skip(offset, request.cursor.returned)
            self._wakes.put(request)
            return
        group.busy = None
        self._log.warn(f"read {group.log.name}", f"log {group.log.name} cannot be read: {error}")
        self._loop.call_later(_RETRY_S, self._wakes.put, request)
