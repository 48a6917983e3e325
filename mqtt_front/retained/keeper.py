"""Keeps the retained messages of all logs up to date, within their limits, and across restarts.

They follow the logs: whatever was appended with RETAIN counts, in the order of offsets. Now and then what has changed
goes into the catalogue, with the offsets up to which that is so, in one transaction; a start reads the documents and
then the logs from there, which a pin keeps until then. So retention may delete any segment, and a kill loses nothing.
"""

import functools
import logging
from array import array
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from mqtt_front.protocol.events import Publishes
from mqtt_front.protocol.header_block import stored_headers
from mqtt_front.retained.checkpoint import (
    CHECKPOINT_KEY,
    Place,
    UnknownRetained,
    decode_checkpoint,
    decode_retained,
    encode_checkpoint,
    encode_retained,
)
from mqtt_front.retained.messages import RetainedMessage, RetainedMessages
from mqtt_front.retained.retention_hold import PinnedDocuments
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.runtime.timer_queue import Schedule
from mqtt_front.runtime.write_behind import Documents, WriteBehind
from timestone.errors import CorruptRecord, OffsetOutOfRange, StoreClosed
from timestone.reading.batch import Batch
from timestone.record import FLAG_RETAIN

SPACE = "mqtt.retained"
_SAVED_AT_A_TIME = 2000
"""Messages in one transaction: sessions wait for the same thread."""
_CHECKPOINT_PERIOD_S = 10.0
"""How often the checkpoint moves while nothing is retained: it spares a start reading."""
_NOT_RETAINED = bytes(range(0, 256, 2))
_MICROSECONDS = 1_000_000


class Dirty(NamedTuple):
    """A topic whose document is not up to date: since which offset of which log."""

    log: str
    offset: int


def has_retained(run: Publishes) -> bool:
    """Is any publish of the run to be retained?"""
    return len(run.first_bytes.translate(None, _NOT_RETAINED)) > 0


class Appended(NamedTuple):
    """What one turn appended to a log."""

    log: str
    offsets: range
    retained: bool
    """Some of it is to be retained."""


class Retaining:
    """All methods but `load` belong to the event loop's thread."""

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
    ) -> None:
        self._logs = {one.log.name: one for one in logs}
        for one in logs:
            one.catch_up = functools.partial(self.catch_up, one)
        self._documents = PinnedDocuments(documents, [one.log for one in logs])
        self._writer = WriteBehind(self._documents, SPACE, loop, save_executor, log=log)
        self._read_executor = read_executor
        self._count_limit = count_limit
        self._bytes_limit = bytes_limit
        self._log = log
        self._time = time
        self._reads: Mailbox[tuple[RetainedMessages, Batch | Exception]] = Mailbox(loop, self._read)
        self._reading: set[str] = set()
        self.expected: dict[str, int] = {}
        """New topics that were admitted and are not in the logs yet, with their sizes."""
        self._expected_bytes = 0
        self._expiries: Schedule[str] = Schedule()
        """By topic: when its message expires, by `PassingTime`."""
        self._dirty: dict[str, Dirty] = {}
        self._checkpoint: dict[str, Place] = {}
        self._checkpoint_s = 0.0
        self.refused_count = 0
        """Publishes that could not be retained any more."""

    @property
    def count(self) -> int:
        """Messages that are retained."""
        return sum(map(len, self._logs.values()))

    @property
    def size_bytes(self) -> int:
        """What they count for the limit: topics, properties, payloads."""
        return sum(one.size_bytes for one in self._logs.values())

    def load(self) -> None:
        """Read what an earlier process left, in its documents and in the logs. Touches the disk: call it before the
        loop serves anybody."""
        documents = self._documents.items(SPACE)
        try:
            self._checkpoint = decode_checkpoint(documents.pop(CHECKPOINT_KEY, None))
        except UnknownRetained as error:
            self._log.error("retained messages: %s; the logs are read from their beginnings", error)
        for topic, document in documents.items():
            try:
                name, message = decode_retained(topic, document)
            except UnknownRetained as error:
                self._log.error("the retained message of %r is left alone: %s", topic[:200], error)
                continue
            if name not in self._logs:
                continue
            try:
                self._put(self._logs[name], message)
            except ValueError as error:
                self._log.error(
                    "the retained message of %r is left alone: its headers: %s", topic[:200], error
                )
        for name, messages in self._logs.items():
            log, place = messages.log, self._checkpoint.get(name)
            known = place is not None and place.log_id == log.id
            messages.position = min(place.offset, log.end_offset) if known and place is not None else 0
            while messages.lagging:
                try:
                    self._apply(messages, log.read(messages.position))
                except (OffsetOutOfRange, CorruptRecord) as error:
                    self._passed(messages, error)
        self._documents.hold(self._places())

    def release(self) -> None:
        """The front stops. Touches the disk, as `load` does: what is saved needs no pin. Raises OSError."""
        if self._writer.saved and not self._dirty:
            self._documents.release()

    def _put(self, messages: RetainedMessages, message: RetainedMessage) -> None:
        expiry_s = stored_headers(message.block).expiry_s
        messages.put(message)
        if expiry_s is None:
            self._expiries.call_off(message.topic)
        else:
            age_s = self._time.age_us(message.timestamp_us) / _MICROSECONDS
            self._expiries.set(message.topic, self._time.now_s() + expiry_s - age_s)

    # Following the logs.

    def follow(self, appended: Sequence[Appended] = ()) -> None:
        """Take into account what was appended. Called after each turn of the loop that appended something, with what
        it was: where nothing of it is retained, it need not be read."""
        for one in appended:
            if not one.retained and self._logs[one.log].position == one.offsets.start:
                self._logs[one.log].position = one.offsets.stop
        for messages in self._logs.values():
            if messages.position < messages.log.end_offset:
                self.catch_up(messages)

    def catch_up(self, messages: RetainedMessages) -> bool:
        """Take into account what was appended to one log. False when the disk is needed for that: then whoever waits is
        called once it has happened."""
        log = messages.log
        while messages.lagging and log.name not in self._reading:
            if not log.in_memory(messages.position):
                self._reading.add(log.name)
                try:
                    self._read_executor.submit(self._read_from_disk, messages, messages.position)
                except RuntimeError:  # the executor is shut down: the front is stopping
                    return False
                break
            try:
                self._apply(messages, log.read(messages.position))
            except Exception as error:
                if not self._passed(messages, error):
                    return False
        return not messages.lagging

    def _read_from_disk(self, messages: RetainedMessages, position: int) -> None:
        """In a thread of the executor."""
        try:
            outcome: Batch | Exception = messages.log.read(position)
        except Exception as error:
            outcome = error
        self._reads.put((messages, outcome))

    def _read(self, outcomes: list[tuple[RetainedMessages, Batch | Exception]]) -> None:
        for messages, outcome in outcomes:
            self._reading.discard(messages.log.name)
            if isinstance(outcome, Batch):
                self._apply(messages, outcome)
            elif not self._passed(messages, outcome):
                continue
            if self.catch_up(messages):
                waiting, messages.waiting = messages.waiting, []
                for call in waiting:
                    call()

    def _passed(self, messages: RetainedMessages, error: Exception) -> bool:
        """Go on behind what cannot be read. False when that is no use."""
        if isinstance(error, OffsetOutOfRange):
            messages.position = max(messages.position + 1, error.start)
        elif isinstance(error, CorruptRecord):
            messages.position = error.next_offset
        else:
            if not isinstance(error, StoreClosed):
                self._log.error("retained messages of log %s fall behind: %s", messages.log.name, error)
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
            self._expected_bytes -= self.expected.pop(record.topic, 0)
            self._dirty.setdefault(record.topic, Dirty(messages.log.name, record.offset))
        messages.position = max(messages.position, batch.next_offset)

    def _elsewhere(self, messages: RetainedMessages, topic: str) -> bool:
        """Remove what another log has for the topic: routes may have changed since."""
        others = [one for one in self._logs.values() if one is not messages]
        return any([one.remove(topic) for one in others])

    def expire(self) -> None:
        """Forget the messages whose expiry interval is over."""
        for topic in self._expiries.take(self._time.now_s()):
            for name, messages in self._logs.items():
                message = messages.get(topic)
                if message is not None:
                    messages.remove(topic)
                    self._dirty.setdefault(topic, Dirty(name, message.offset))

    # Limits.

    def over_limit(self, run: Publishes) -> list[int]:
        """The places in a run of publishes that cannot be retained, because there would be too many messages or bytes.
        The others are expected to be appended."""
        refused: list[int] = []
        count, size_bytes = self.count, self.size_bytes
        headers = run.header_lengths
        header_lengths = [headers] * len(run.first_bytes) if isinstance(headers, int) else headers
        rows = zip(run.first_bytes, run.numbers(), array("I", run.lengths), header_lengths, strict=True)
        for place, (first, number, length, header_length) in enumerate(rows):
            if not first & 1 or length == header_length:
                continue
            topic = run.topics[number].decode("utf-8", "replace")
            known = next((one for each in self._logs.values() if (one := each.get(topic))), None)
            added = len(topic) + length - (known.size_bytes if known else self.expected.get(topic, 0))
            new = known is None and topic not in self.expected
            if (new and count + len(self.expected) >= self._count_limit) or (
                added > 0 and size_bytes + self._expected_bytes + added > self._bytes_limit
            ):
                refused.append(place)
            elif new:
                self.expected[topic] = added
                self._expected_bytes += added
        self.refused_count += len(refused)
        return refused

    def forget_expected(self) -> None:
        """Nothing is on its way to the logs: what was expected and did not come never will."""
        self.expected.clear()
        self._expected_bytes = 0

    # Saving.

    @property
    def saved(self) -> bool:
        """The documents are up to date; what has to be written for that is on its way."""
        self.save()
        return self._writer.saved and not self._dirty

    def save(self) -> None:
        """Begin to bring documents up to date, the oldest changes first."""
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

    def _places(self) -> dict[str, Place]:
        """By log: below which offset the documents are up to date, once what is chosen is written."""
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
