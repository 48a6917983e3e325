"""Retained messages of all logs: kept up to date, within their limits, and across restarts.

They follow the logs: everything appended with RETAIN counts, in the order of offsets. At intervals, changes are written
to the catalogue together with the offsets that they cover, in one transaction; a start reads the documents and then the
logs from those offsets, which a pin keeps until then. So retention may delete any segment, and a kill loses nothing."""

import functools
import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from mqtt_front.protocol.events import Publishes
from mqtt_front.protocol.header_block import publisher_of, stored_headers
from mqtt_front.retained.checkpoint import (
    CHECKPOINT_KEY,
    Place,
    UndecodableRetained,
    decode_checkpoint,
    decode_retained,
    encode_checkpoint,
    encode_retained,
)
from mqtt_front.retained.messages import RetainedMessage, RetainedMessages
from mqtt_front.retained.retention_hold import HeldDocuments
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.thread_work import ThreadWork
from mqtt_front.runtime.timer_queue import TimerQueue
from mqtt_front.runtime.user_share import Shares, Tally
from mqtt_front.runtime.write_behind import WriteBehind
from timestone.errors import CorruptRecord, HistoryUnavailable, OffsetOutOfRange, StoreClosed
from timestone.fronts import Documents
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.record import FLAG_RETAIN

SPACE = "mqtt.retained"
_SAVED_AT_A_TIME = 2000
"""Messages in one transaction: sessions wait for the same thread."""
_CHECKPOINT_PERIOD_S = 10.0
"""Interval of moving the checkpoint while nothing is retained, which shortens the next start."""
_NOT_RETAINED = bytes(range(0, 256, 2))
_MICROSECONDS = 1_000_000


class _Expected(NamedTuple):
    """Growth by an admitted message that is not in its log yet."""

    owner: str
    messages: int
    """1 if its owner gets one more message."""
    size_bytes: int
    """Growth of its owner's bytes."""
    new: int
    """1 if nothing is retained for its topic."""
    growth_bytes: int
    """Growth of the bytes of all messages."""


class Dirty(NamedTuple):
    """Topic whose document is out of date, since an offset of a log."""

    log: str
    offset: int


def has_retained(run: Publishes) -> bool:
    """Return whether a publish of the run is to be retained."""
    return len(run.first_bytes.translate(None, _NOT_RETAINED)) > 0


class Appended(NamedTuple):
    """Appended records of one turn in a log."""

    log: str
    offsets: range
    retained: bool
    """Whether some of it is to be retained."""


class Retaining:
    """Retained messages of a front. All methods but `load` are for the event-loop thread."""

    def __init__(
        self,
        logs: Sequence[RetainedMessages],
        documents: Documents,
        loop: Loop,
        save_executor: Executor,
        read_executor: Executor,
        *,
        count_limit: int,
        bytes_limit: int,
        log: logging.Logger,
        time: PassingTime,
        shares: Shares | None = None,
        others: Sequence[RetainedMessages] = (),
    ) -> None:
        """others: messages that another keeper has, which count for the limits."""
        self._shares = Shares() if shares is None else shares
        self._logs = {one.log.key: one for one in logs}
        self._all = (*self._logs.values(), *others)
        for one in logs:
            one.catch_up = functools.partial(self.catch_up, one)
        self._documents = HeldDocuments(documents, [one.log for one in logs])
        self._writer = WriteBehind(self._documents, SPACE, loop, save_executor, log=log)
        self._read_executor = read_executor
        self._count_limit = count_limit
        self._bytes_limit = bytes_limit
        self._log = log
        self._time = time
        self._work = ThreadWork(loop)
        self._reading: set[str] = set()
        self.expected: dict[str, _Expected] = {}
        """By topic: admitted messages that are not in the logs yet, if they add to the retained ones."""
        self._expected_counts, self._expected_sizes = Tally(), Tally()
        """Their sums by owner."""
        self._expected_new = self._expected_growth = 0
        """Their sum for all owners."""
        self._expiries: TimerQueue[str] = TimerQueue()
        """By topic: when its message expires, by `PassingTime`."""
        self._dirty: dict[str, Dirty] = {}
        self._checkpoint: dict[str, Place] = {}
        self._checkpoint_s = 0.0
        self.refused_count = 0
        """Publishes that were refused because of a limit of retained messages."""

    @property
    def count(self) -> int:
        """Return the number of retained messages."""
        return sum(map(len, self._logs.values()))

    @property
    def size_bytes(self) -> int:
        """Return their size for the limit: topics, properties, payloads."""
        return sum(one.sizes.total for one in self._logs.values())

    def find(self, topic: str) -> tuple[Log, RetainedMessage] | None:
        """Return the retained message of a topic and its log, if it has one."""
        for one in self._all:
            if (message := one.get(topic)) is not None:
                return one.log, message
        return None

    def load(self) -> None:
        """Read the documents of an earlier process, and the logs after them. Reads the disk: call before the loop
        serves clients."""
        documents = self._documents.items(SPACE)
        try:
            self._checkpoint = decode_checkpoint(documents.pop(CHECKPOINT_KEY, None))
        except UndecodableRetained as error:
            self._log.error("retained messages: %s; the logs are read from their beginnings", error)
        known = {
            name: name in self._checkpoint and self._checkpoint[name].log_id == one.log.id
            for name, one in self._logs.items()
        }
        deleted: list[str] = []
        for topic, document in documents.items():
            try:
                name, message = decode_retained(topic, document)
            except UndecodableRetained as error:
                self._log.error("the retained message of %r is left alone: %s", topic[:200], error)
                continue
            if name not in self._logs:
                continue
            if name in self._checkpoint and not known[name]:  # of an earlier log of this name
                deleted.append(topic)
                continue
            try:
                self._put(self._logs[name], message)
            except ValueError as error:
                self._log.error(
                    "the retained message of %r is left alone: its headers: %s", topic[:200], error
                )
        if deleted:
            self._checkpoint = {
                name: self._checkpoint[name] if known[name] else Place(one.log.id, 0)
                for name, one in self._logs.items()
            }
            # At once: with the new checkpoint they would pass for messages of this log.
            changes = {**dict.fromkeys(deleted), CHECKPOINT_KEY: encode_checkpoint(self._checkpoint)}
            self._documents.put_many(SPACE, changes)
        for name, messages in self._logs.items():
            log = messages.log
            messages.position = min(self._checkpoint[name].offset, log.end_offset) if known[name] else 0
            while messages.lagging:
                try:
                    self._apply(messages, log.read(messages.position))
                except (OffsetOutOfRange, CorruptRecord) as error:
                    self._passed(messages, error)
                except HistoryUnavailable as error:  # the next record that comes tries again
                    self._passed(messages, error)
                    break
        self._documents.hold(self._places())

    def release(self) -> None:
        """Write all documents and release the pin, when the front stops. Touches the disk, as `load` does. Raises
        OSError."""
        if self._writer.saved and not self._dirty:
            self._documents.release()

    def _put(self, messages: RetainedMessages, message: RetainedMessage) -> None:
        expiry_s = stored_headers(message.block).expiry_s
        publisher = publisher_of(message.block)
        if publisher is not None:
            message = message._replace(owner=sys.intern(self._shares.owner(publisher)))
        messages.put(message)
        if expiry_s is None:
            self._expiries.call_off(message.topic)
        else:
            age_s = self._time.age_us(message.timestamp_us) / _MICROSECONDS
            self._expiries.set(message.topic, self._time.now_s() + expiry_s - age_s)

    # Following the logs.

    def follow(self, appended: Sequence[Appended] = ()) -> None:
        """Take appended records into account. Called after each turn of the loop that appended any; what has nothing to
        retain need not be read."""
        for one in appended:
            messages = self._logs.get(one.log)
            if not one.retained and messages is not None and messages.position == one.offsets.start:
                messages.position = one.offsets.stop
        for messages in self._logs.values():
            if messages.position < messages.log.end_offset:
                self.catch_up(messages)

    def catch_up(self, messages: RetainedMessages) -> bool:
        """Take into account what was appended to one log. Return False if the disk is needed for that:
        `messages.waiting` is then called afterwards."""
        log = messages.log
        while messages.lagging and log.key not in self._reading:
            if not log.in_memory(messages.position):
                self._reading.add(log.key)
                read = functools.partial(log.read, messages.position)
                self._work.run(self._read_executor, read, functools.partial(self._read, messages))
                return False
            try:
                self._apply(messages, log.read(messages.position))
            except Exception as error:
                if not self._passed(messages, error):
                    return False
        return not messages.lagging

    def _read(self, messages: RetainedMessages, outcome: Batch | Exception) -> None:
        self._reading.discard(messages.log.key)
        if isinstance(outcome, Batch):
            self._apply(messages, outcome)
        elif not self._passed(messages, outcome):
            return
        if self.catch_up(messages):
            waiting, messages.waiting = messages.waiting, []
            for call in waiting:
                call()

    def _passed(self, messages: RetainedMessages, error: Exception) -> bool:
        """Skip what cannot be read. Return False if that is impossible."""
        if isinstance(error, OffsetOutOfRange):
            messages.position = max(messages.position + 1, error.start)
        elif isinstance(error, CorruptRecord):
            messages.position = error.next_offset
        else:
            if not isinstance(error, StoreClosed):
                self._log.error("retained messages of log %s fall behind: %s", messages.log.key, error)
            return False
        return True

    def _apply(self, messages: RetainedMessages, batch: Batch) -> None:
        for number in np.flatnonzero(batch.flags & FLAG_RETAIN).tolist():
            record = batch[number]
            if record.topic is None:
                continue
            if record.payload:
                block = batch.header_block(number)
                message = RetainedMessage(
                    record.offset, record.timestamp_us, record.topic, record.flags, block, record.payload
                )
                self._put(messages, message)
                self._elsewhere(messages, record.topic)
            elif not messages.remove(record.topic) and not self._elsewhere(messages, record.topic):
                continue
            else:
                self._expiries.call_off(record.topic)
            self._expect(record.topic, None)
            self._dirty.setdefault(record.topic, Dirty(messages.log.key, record.offset))
        messages.position = max(messages.position, batch.next_offset)

    def _elsewhere(self, messages: RetainedMessages, topic: str) -> bool:
        """Remove the message of another log for the topic: routes may have changed since."""
        others = [one for one in self._logs.values() if one is not messages]
        return any([one.remove(topic) for one in others])

    def expire(self) -> None:
        """Drop the messages whose expiry interval has passed."""
        for topic in self._expiries.take(self._time.now_s()):
            for name, messages in self._logs.items():
                message = messages.get(topic)
                if message is not None:
                    messages.remove(topic)
                    self._dirty.setdefault(topic, Dirty(name, message.offset))

    # Limits.

    def over_limit(self, run: Publishes, owner: str) -> dict[int, str]:
        """Return the publishes of a run of this owner that cannot be retained within the limits of messages and bytes:
        the setting that forbids it, by place. The others are expected to be appended."""
        refused: dict[int, str] = {}
        for place, row in enumerate(run.rows()):
            if row.first & 1 and row.payload:
                topic = row.topic.decode("utf-8", "replace")
                size_bytes = len(topic) + len(row.headers) + len(row.payload)
                if (setting := self._admit(topic, size_bytes, owner)) is not None:
                    refused[place] = setting
        self.refused_count += len(refused)
        return refused

    def _admit(self, topic: str, size_bytes: int, owner: str) -> str | None:
        """Count a message of this owner as expected; return the setting that forbids it, if any."""
        found = self.find(topic)
        known = None if found is None else found[1]
        earlier = self.expected.get(topic)
        if known is None:
            wanted = _Expected(owner, 1, size_bytes, 1, size_bytes)
        else:
            growth_bytes = max(0, size_bytes - known.size_bytes)
            own = known.owner == owner
            if own and not growth_bytes and earlier is None:
                return None
            wanted = _Expected(owner, not own, growth_bytes if own else size_bytes, 0, growth_bytes)
        self._expect(topic, None)
        setting = self._forbids(wanted)
        self._expect(topic, wanted if setting is None else earlier)
        return setting

    def _forbids(self, wanted: _Expected) -> str | None:
        """Return the setting that forbids one more message, if any."""
        if wanted.new and sum(map(len, self._all)) + self._expected_new >= self._count_limit:
            return "retained_count"
        size_bytes = sum(one.sizes.total for one in self._all)
        grown_bytes = size_bytes + self._expected_growth + wanted.growth_bytes
        if wanted.growth_bytes and grown_bytes > self._bytes_limit:
            return "retained_bytes"
        owner, shares, logs = wanted.owner, self._shares, self._all
        count = sum(one.counts.of(owner) for one in logs) + self._expected_counts.of(owner) + wanted.messages
        if wanted.messages and count > shares.of(self._count_limit):
            return "user_share_percent"
        size_bytes = sum(one.sizes.of(owner) for one in logs) + self._expected_sizes.of(owner)
        if wanted.size_bytes and size_bytes + wanted.size_bytes > shares.of(self._bytes_limit):
            return "user_share_percent"
        return None

    def _expect(self, topic: str, expected: _Expected | None) -> None:
        """Expect this message for a topic, or none, in place of the one before."""
        for sign, one in ((-1, self.expected.pop(topic, None)), (1, expected)):
            if one is not None:
                self._expected_counts.add(one.owner, sign * one.messages)
                self._expected_sizes.add(one.owner, sign * one.size_bytes)
                self._expected_new += sign * one.new
                self._expected_growth += sign * one.growth_bytes
        if expected is not None:
            self.expected[topic] = expected

    def forget_expected(self) -> None:
        """Drop the expected messages, when no publish is on its way to the logs: one that did not arrive never will."""
        for topic in list(self.expected):
            self._expect(topic, None)

    # Saving.

    @property
    def saved(self) -> bool:
        """Return whether the documents are up to date or being written."""
        self.save()
        return self._writer.saved and not self._dirty

    def save(self) -> None:
        """Begin to write documents that are out of date, the oldest changes first."""
        now = self._time.now_s()
        if not self._writer.saved or (not self._dirty and now < self._checkpoint_s + _CHECKPOINT_PERIOD_S):
            return
        chosen = list(self._dirty)[:_SAVED_AT_A_TIME]
        for topic in chosen:
            del self._dirty[topic]
            self._writer.write(topic, self._document(topic))
        checkpoint = self._places()
        if checkpoint != self._checkpoint:
            self._checkpoint, self._checkpoint_s = checkpoint, now
            self._writer.write(CHECKPOINT_KEY, encode_checkpoint(checkpoint))

    def forget_changes(self) -> None:
        """Write no document of what has changed: another keeper does."""
        self._dirty.clear()

    def _places(self) -> dict[str, Place]:
        """Return, by log, the offset below which the documents are up to date once the chosen ones are written."""
        places = {name: Place(one.log.id, one.position) for name, one in self._logs.items()}
        for name, offset in self._dirty.values():
            if offset < places[name].offset:
                places[name] = places[name]._replace(offset=offset)
        return places

    def _document(self, topic: str) -> bytes | None:
        for name, messages in self._logs.items():
            message = messages.get(topic)
            if message is not None:
                return encode_retained(name, message)
        return None
