"""Where a topic filter becomes a feed: for each log that it covers, the feed that all plain filters of the session
share, or one of its own."""

from typing import TYPE_CHECKING

from mqtt_front.feeds.feed import Feed, LogSource, own_key
from mqtt_front.feeds.shared_feed import SharedFeed
from mqtt_front.feeds.stream_feed import StreamFeed
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.topics.filter_form import Kind

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session


class FilterFeeds(dict[str, Feed]):
    """Feeds of one session by key: the name of the log, unless the feed serves one subscription only."""

    __slots__ = ("_key_count", "_session")

    def __init__(self, session: "Session") -> None:
        super().__init__()
        self._session = session
        self._key_count = 0

    def cover(
        self,
        subscription: Subscription,
        source: LogSource,
        since: dict[str, int],
        start: tuple[int, bool] | None = None,
    ) -> None:
        """Let a subscription cover a log, with a new feed if needed. `since` gets the key of the feed and the first
        offset that the subscription covers. start: where a feed of its own begins, by default at the end of the log,
        and whether retention has deleted records that it was asked for."""
        if subscription.form.kind is Kind.PLAIN:
            self._cover_shared(source, since)
        else:
            self._cover_own(subscription, source, since, start or (source.log.end_offset, False))

    def _cover_shared(self, source: LogSource, since: dict[str, int]) -> None:
        name = source.log.key
        if name not in self:
            self[name] = Feed(self._session, source, source.log.end_offset)
        elif name in since:
            return
        since[name] = source.log.end_offset

    def _cover_own(
        self, subscription: Subscription, source: LogSource, since: dict[str, int], start: tuple[int, bool]
    ) -> None:
        offset, missed = start
        key = own_key(source, subscription.topic_filter)
        if key in self and key in since:
            return
        if key in self:  # of an ended subscription with deliveries in flight
            ended = self.pop(key)
            ended.key = self.free_key("ended")
            self[ended.key] = ended
        since[key] = 0
        feed: Feed
        if subscription.form.shared:
            feed = SharedFeed(self._session, source, subscription.topic_filter, start=offset)
        else:
            feed = StreamFeed(self._session, source, subscription.topic_filter, offset)
            if missed:
                feed.lost(offset)
        self[key] = feed

    def free_key(self, kind: str) -> str:
        """Return a key that no feed has, for one that no log or filter names."""
        while (key := f"{kind}/{self._key_count}") in self:
            self._key_count += 1
        self._key_count += 1
        return key

    def drop_idle(self) -> None:
        """Drop the feeds that no subscription needs any more."""
        for key in [key for key, feed in self.items() if feed.idle]:
            self.pop(key).detach()
