"""Store of the shared subscriptions of a front, across restarts.

A group is one document in the same namespace and the same transactions as the sessions: what a session has taken at
QoS 2 and what the group has assigned become durable together. In addition, the position of a group is a named reader
of its log in the catalogue, which shows its lag."""

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mqtt_front.feeds.remote_group import Branches, RemoteGroup
from mqtt_front.feeds.shared_group import SavedGroup, SharedGroup
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.timer_queue import TimerQueue
from mqtt_front.runtime.user_share import Shares, Tally
from mqtt_front.topics.filter_form import Kind, parse_filter
from timestone.disk.json_document import integer, integers, json_object
from timestone.errors import InvalidName
from timestone.format.names import validate_reader_name
from timestone.log import Log
from timestone.reading.named_readers import Commitment, ReaderId

VERSION = 4
_READABLE = (1, 2, 3, 4)
"""Version 1 has no owners and no time without members; `sent_below` exists from version 3 on, what is to be delivered
exactly once elsewhere from version 4 on."""
NEVER_S = 0xFFFFFFFF
KEY_PREFIX = "\0group/"
"""No client id begins with U+0000."""
_HOME_PREFIX = "\0home/"
_DONE = ""
"""Key of what a group elsewhere has to learn. No session has it."""


def home_key(number: int) -> str:
    """Return the key of the members whose home is another one, for their group."""
    return f"{_HOME_PREFIX}{number}"


def home_of(member: str) -> int | None:
    """Return the home in a key of a member, or in its `once_key`; None for the key of a session."""
    return int(member.split("/")[1]) if member.startswith(_HOME_PREFIX) else None


class Groups:
    """Groups by log and topic filter. Event-loop thread only."""

    def __init__(self, shares: Shares | None = None, branches: Branches | None = None) -> None:
        """branches: groups at other homes of a cluster with several shards."""
        self.shares = Shares() if shares is None else shares
        self.branches = branches
        self.tally = Tally()
        """Number of groups by owner."""
        self._groups: dict[str, SharedGroup] = {}
        self._of_member: dict[str, set[str]] = {}
        self.changed: set[SharedGroup] = set()
        """Groups with unsaved changes."""
        self._gone: dict[str, SharedGroup] = {}
        self._saving: list[Callable[[], None]] = []
        self._left: set[str] = set()
        """Queues whose last member left since the last `expire`, and groups without members that are not settled."""
        self._ends: TimerQueue[str] = TimerQueue()
        """Queues without members, by the time when they end."""

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[SharedGroup]:
        return iter(list(self._groups.values()))

    def find(self, log: Log, topic_filter: str) -> SharedGroup | None:
        """Return the group, if it exists."""
        return self._groups.get(_key(log.key, topic_filter))

    def get(self, log: Log, topic_filter: str, start: int | None = None, *, owner: str = "") -> SharedGroup:
        """Return the group; a new one belongs to `owner` and begins at `start`, by default at the end of the log."""
        key = _key(log.key, topic_filter)
        found = self._groups.get(key)
        if found is not None:
            return found
        form = parse_filter(topic_filter)
        names = log, topic_filter, form.pattern, log.end_offset if start is None else start
        group: SharedGroup
        if self.branches is not None and self.branches.is_elsewhere(log):
            group = RemoteGroup(*names, owner=owner, changed=self.changed, branches=self.branches)
        else:
            durable = form.kind is Kind.QUEUE
            group = SharedGroup(*names, durable=durable, owner=owner, changed=self.changed)
        self._groups[key] = group
        self.tally.add(owner)
        self._gone.pop(key, None)
        return group

    def joined(self, group: SharedGroup, member: str) -> None:
        """Note that a session has the subscription."""
        group.join(member)
        self._left.discard(_key_of(group))
        if group.durable:
            group.unused_s = 0.0
            self._ends.call_off(_key_of(group))
        self._of_member.setdefault(member, set()).add(_key_of(group))

    def leave(self, group: SharedGroup, member: str) -> None:
        """Note that a session has unsubscribed. The group ends with its last member, or once it is settled; a queue
        some time later."""
        key = _key_of(group)
        group.leave(member)
        keys = self._of_member.get(member, set())
        keys.discard(key)
        if not keys:
            self._of_member.pop(member, None)
        if group.members or self._groups.get(key) is not group:
            return
        if group.durable or not group.is_settled:
            self._left.add(key)
        else:
            self._end(key)

    def _end(self, key: str) -> None:
        self._left.discard(key)
        group = self._gone[key] = self._groups.pop(key)
        self.tally.add(group.owner, -1)
        group.close()

    def expire(self, time: PassingTime, lifetime_s: int) -> None:
        """End the queues that have had no members for `lifetime_s`, and groups without members that are settled by
        now."""
        for key in [key for key in self._left if not self._groups[key].durable]:
            if self._groups[key].is_settled:
                self._end(key)
        if lifetime_s != NEVER_S:
            for key in [key for key in self._left if self._groups[key].durable]:
                self._left.discard(key)
                group = self._groups[key]
                if not group.unused_s:
                    group.unused_s = time.kept_s()
                    group.touch()
                # At most the whole lifetime: power may have failed since.
                left_s = min(0.0, group.unused_s - time.kept_s()) + lifetime_s
                self._ends.set(key, time.now_s() + left_s)
        for key in self._ends.take(time.now_s()):
            self._end(key)

    def session_ended(self, member: str) -> None:
        """Remove an ended session from its groups."""
        for key in list(self._of_member.get(member, ())):
            self.leave(self._groups[key], member)

    def rename(self, member: str, new: str) -> None:
        """Change the key of a session."""
        for key in self._of_member.pop(member, set()):
            self._groups[key].rename(member, new)
            self._of_member.setdefault(new, set()).add(key)

    def close(self) -> None:
        """Follow the logs no more, when the state belongs to another server."""
        for group in self._groups.values():
            group.close()

    # Across restarts.

    def restore(
        self,
        documents: Mapping[str, bytes],
        logs: Callable[[str], Log | None],
        sessions: Mapping[str, bool],
        complain: logging.Logger,
    ) -> None:
        """Restore the groups of an earlier process. sessions: keys of the remaining sessions, and whether their
        clients were away at its end. Records that ended sessions had taken at QoS 2 are dropped."""
        for key, document in documents.items():
            name, _, topic_filter = key.removeprefix(KEY_PREFIX).partition("/")
            log = logs(name)
            if log is None:
                continue
            try:
                self._restore(log, topic_filter, json_object(document), sessions)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                complain.error("shared subscription %r begins again: %r", topic_filter[:200], error)

    def _restore(
        self, log: Log, topic_filter: str, body: dict[str, Any], sessions: Mapping[str, bool]
    ) -> None:
        if body["version"] not in _READABLE:
            raise ValueError(f"version {body['version']}; this server reads versions up to {VERSION}")
        if body["version"] == 1:
            body |= {"owner": "".join(map(self.shares.owner, body["members"][:1])), "unused_s": 0}
        if body["version"] < 3:
            body["sent_below"] = 0
        own = [member for member in body["members"] if home_of(member) is None]
        if not all(sessions.get(member, False) for member in own):  # killed while replacing one that existed
            body["sent_below"] = log.end_offset
        owner, unused_s = body["owner"], body["unused_s"]
        if (
            not isinstance(owner, str)
            or not isinstance(unused_s, (int, float))
            or not math.isfinite(unused_s)
        ):
            raise TypeError(f"owner is {owner!r:.40}, unused_s is {unused_s!r:.40}")
        members = [member for member in body["members"] if member in sessions or home_of(member) is not None]
        if body["id"] == log.id:
            group = self._restore_offsets(log, topic_filter, body, sessions, owner)
        else:
            group = self.get(log, topic_filter, log.start_offset, owner=owner)
        for member in members:
            self.joined(group, member)
        if not group.members:
            group.unused_s = float(unused_s)
            self.leave(group, "")

    def _restore_offsets(
        self, log: Log, topic_filter: str, body: dict[str, Any], sessions: Mapping[str, bool], owner: str
    ) -> SharedGroup:
        held = {member: set(integers(offsets)) for member, offsets in body["held"].items()}
        seen = min(integer(body["seen"]), log.end_offset)
        open_offsets: set[int] = set()
        for first, end in body["open"]:
            # As `seen`: in a copy older than its catalogue; and never more than exist, which would fill the memory.
            open_offsets.update(range(integer(first), min(integer(end), log.end_offset)))
        gone = [one for one in held if one not in sessions and home_of(one) is None]
        ended = set[int]().union(*map(held.pop, gone))
        unsure = {one: log.end_offset for one in body["members"] if home_of(one) is not None}
        group = self.get(log, topic_filter, seen, owner=owner)
        group.restore(SavedGroup(seen, open_offsets, held, ended, integer(body["sent_below"]), unsure))
        return group

    def changes(self, now_us: int) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
        """Return the changes since the last call: documents of groups, and positions of their named readers."""
        documents: dict[str, bytes | None] = {}
        readers: dict[str, bytes | None] = {}
        for key, group in self._gone.items():
            documents[KEY_PREFIX + key] = None
            if (reader := _reader(group)) is not None:
                readers[reader.key] = None
        self._gone.clear()
        changed = [(key, group) for group in self.changed if self._groups.get(key := _key_of(group)) is group]
        self.changed.clear()
        for key, group in changed:
            documents[KEY_PREFIX + key] = encode_group(group)
            if isinstance(group, RemoteGroup):
                self._saving.append(group.saving())
            if (reader := _reader(group)) is not None:
                readers[reader.key] = Commitment(group.committed, now_us).encode()
        return documents, readers

    def take_saving(self) -> list[Callable[[], None]]:
        """Return what to call once the changes returned up to now are durable."""
        saving, self._saving = self._saving, []
        return saving


def encode_group(group: SharedGroup) -> bytes:
    """Return the document of a group."""
    held = {member: sorted(offsets) for member, offsets in group.held.items()}
    for member, feed in group.members.items():
        if feed is not None and (at_qos_2 := feed.held):
            held[member] = at_qos_2
    if group.done:
        held[_DONE] = sorted(group.done)
    body = {
        "version": VERSION,
        "id": group.log.id,
        "seen": group.seen,
        "open": _ranges(group.open_offsets),
        "held": held,
        "members": list(group.members),
        "owner": group.owner,
        "unused_s": group.unused_s,
        "sent_below": group.sent_below,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _ranges(offsets: Iterable[int]) -> list[list[int]]:
    """Return offsets as half-open ranges."""
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] += 1
        else:
            ranges.append([offset, offset + 1])
    return ranges


def _key(log: str, topic_filter: str) -> str:
    return f"{log}/{topic_filter}"


def _key_of(group: SharedGroup) -> str:
    return _key(group.log.key, group.topic_filter)


def _reader(group: SharedGroup) -> ReaderId | None:
    """Return the named reader of the group; None if its place is elsewhere, or its filter is not a valid name."""
    if not group.has_place:
        return None
    try:
        validate_reader_name(group.topic_filter)
    except InvalidName:
        return None
    return ReaderId(group.log.name, group.log.partition, group.topic_filter)
