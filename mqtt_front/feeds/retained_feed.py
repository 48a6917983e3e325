"""Feed of retained messages for new subscriptions, in order of offset. Messages published to their topics afterwards
replace them and are delivered live."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mqtt_front.feeds.feed import Feed, LogSource, OnWake
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.retained.messages import RetainedMessages
from timestone.reading.batch import Batch

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session


@dataclass(slots=True, eq=False)
class RetainedCursor:
    """Cursor over the retained messages of one log that are older than `until`."""

    messages: RetainedMessages
    filters: Sequence[str]
    offset: int
    until: int
    also: frozenset[int]
    """Offsets to read regardless of their topics."""
    on_wake: Callable[["RetainedCursor"], None]
    _offsets: list[int] | None = None
    _next: int = 0

    @property
    def caught_up(self) -> bool:
        """Return whether everything was read, or the messages are not up to date."""
        return self.offset >= self.until or not self.messages.catch_up()

    def read(self, *, max_records: int = 1024, max_bytes: int = 0, max_scan: int | None = None) -> Batch:
        """Return the next messages, in batches sized by `RetainedMessages.batch`. Empty while they are not up to
        date, because an older message could follow a newer one."""
        messages = self.messages
        if not messages.catch_up():
            return messages.batch([], self.offset)
        if self._offsets is None:
            chosen = set(messages.offsets(self.filters, self.offset, self.until))
            chosen.update(offset for offset in self.also if self.offset <= offset < self.until)
            self._offsets = sorted(chosen)
        end = self._next + max_records
        following = self._offsets[end] if end < len(self._offsets) else self.until
        batch = messages.batch(self._offsets[self._next : end], following)
        while self._next < len(self._offsets) and self._offsets[self._next] < batch.next_offset:
            self._next += 1
        self.offset = batch.next_offset
        return batch

    def park(self) -> bool:
        """Return whether nothing more comes before the messages are up to date."""
        if self.offset >= self.until:
            return True
        if self.messages.catch_up():
            return False
        self.messages.waiting.append(lambda: self.on_wake(self))
        return True

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        self.offset, self._offsets, self._next = offset, None, 0

    def close(self) -> None:
        """Stop reading."""
        self._offsets, self.until = [], self.offset


class RetainedFeed(Feed):
    """Retained messages of one log for the subscriptions of one SUBSCRIBE."""

    __slots__ = ("topic_filters", "until")

    def __init__(
        self,
        session: "Session",
        source: LogSource,
        key: str,
        topic_filters: Iterable[str],
        *,
        until: int,
        seen: int = 0,
        in_flight: Iterable[int] = (),
    ) -> None:
        super().__init__(session, source, seen, in_flight, key)
        self.takes_singles = False
        self.topic_filters = dict.fromkeys(topic_filters)
        """Filters whose messages are not all sent."""
        self.until = until

    @property
    def idle(self) -> bool:
        return (self.window.seen >= self.until or not self.subscriptions) and not self.window.in_flight_count

    def change(self, changed: Mapping[str, Subscription | None]) -> None:
        """Change the subscriptions as `Feed.change`; RETAIN is sent as stored [MQTT-3.3.1-8]."""
        for topic_filter, one in changed.items():
            if one is None:
                self.topic_filters.pop(topic_filter, None)
        super().change(
            {
                topic_filter: None if one is None else replace(one, retain_as_published=True, since={})
                for topic_filter, one in changed.items()
            }
        )

    def attach(self, resend: dict[int, tuple[int, int]], on_wake: OnWake, missed_qos0: bool = False) -> int:
        """Attach as `Feed.attach`; nothing counts as missed, at any QoS."""
        return super().attach(resend, on_wake, missed_qos0=True)

    def _open(self, start: int, filters: Sequence[str] | None) -> int:
        if self.reader is not None:
            self.reader.close()
        until = max(self.until, self.window.seen)
        on_wake = self._on_wake
        patterns = self.patterns if filters is None else filters
        self.reader = RetainedCursor(
            self.source.retained,
            patterns,
            start,
            until,
            frozenset(self.resend),
            lambda cursor: on_wake((self, cursor)),
        )
        return start

    def prepare(self) -> bool | None:
        return True
