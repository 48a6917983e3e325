"""Members of shared subscriptions whose homes are elsewhere in a cluster: their homes ask for records of the logs that
this one leads, and get offsets, which they read in their own copies. The other side is `feeds.remote_group`."""

import json
import time
from collections.abc import Callable, Mapping
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

Read = Callable[[Callable[[], Batch], Callable[[Batch | Exception], None]], None]
"""Runs a function that may read the disk, in a thread, and passes its result to another one in the event loop."""


class _Request:
    """A member elsewhere waits for records: a member of the group until it gets some."""

    def __init__(
        self, group: SharedGroup, home: "_Home", room: int, wake: Callable[["_Request"], None]
    ) -> None:
        self.group, self.home, self.room = group, home, max(1, min(room, _ROOM))
        self._wake = wake
        self.is_over = False
        self.cursor = MemberCursor(self, group)

    @property
    def takes_part(self) -> bool:
        return not self.is_over

    def wake(self) -> None:
        self._wake(self)


class _Home:
    """A home with members here."""

    def __init__(self, number: int) -> None:
        self.key = home_key(number)
        self.correspondent: Correspondent | None = None
        self.number = 0
        """Of its first message on this connection."""
        self.away_s = time.monotonic()
        self.connected: dict[SharedGroup, int] = {}
        self.requests: dict[SharedGroup, set[_Request]] = {}

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
        self, loop: Loop, groups: Groups, logs: Mapping[str, Log], read: Read, log: ThrottledLog
    ) -> None:
        """logs: those that this home leads, by name."""
        self._loop, self._groups, self._logs, self._read, self._log = loop, groups, logs, read, log
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
        """Give what homes have whose connection has ended some time ago to other members."""
        for home in self._homes.values():
            if home.correspondent is not None:
                if home.correspondent.is_open:
                    continue
                home.correspondent, home.away_s = None, time.monotonic()
                for group in list(home.connected):
                    home.count(group, 0)
            if time.monotonic() >= home.away_s + _AWAY_S:
                home.away_s = float("inf")
                for group in self._own:
                    group.take_back(home.key)

    # What homes say.

    def heard(self, number: int, data: bytes, correspondent: Correspondent) -> None:
        """Handle a message of a home."""
        if not self._is_open:
            return  # it will ask again
        try:
            message = json_object(data)
            turn, entries = integer(message["number"]), message["groups"]
            home = self._homes.setdefault(number, _Home(number))
            if message.get("is_first", False):
                home.correspondent, home.number = correspondent, turn
                self._agree(home, entries)
                correspondent.send(json.dumps({"number": turn}).encode())
            elif home.correspondent is correspondent and home.number == turn:
                for entry in entries:
                    self._update(home, entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._log.warn("home", f"shared subscriptions of home {number}: message ignored: {error!r:.300}")

    def _agree(self, home: _Home, entries: list[Any]) -> None:
        for group in list(home.connected):
            home.count(group, 0)
        known = set()
        for entry in entries:
            joined = self._joined(home, entry)
            if joined is not None:
                known.add(joined)
                joined.agree(home.key, set(integers(entry["held"])), set(integers(entry["done"])))
                self._waits(home, joined, entry)
        for group in self._own:
            if home.key in group.members and group not in known:
                self._leave(home, group)

    def _update(self, home: _Home, entry: dict[str, Any]) -> None:
        group = self._joined(home, entry)
        if group is None:
            return
        group.settle(home.key, integers(entry["done"]))
        group.take_back(home.key, integers(entry["returned"]))
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
        group.take_back(home.key)
        self._groups.leave(group, home.key)

    def _waits(self, home: _Home, group: SharedGroup, entry: dict[str, Any]) -> None:
        connected = integer(entry["connected"])
        home.count(group, connected)
        for room in integers(entry["asks"]) if connected else ():
            request = _Request(group, home, room, self._wakes.put)
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
        group.give(home.key, offsets)
        again = group.repeats(returned) or offsets[0] < group.sent_below
        message = {"number": home.number, "log": group.log.name, "filter": group.topic_filter}
        message |= {"offsets": offsets, "again": again}
        assert home.correspondent is not None
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
