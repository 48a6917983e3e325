"""Feed of the history of one log for one subscription: from its own position, at the pace of the client, with a
notice of what retention has deleted."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mqtt_front.feeds.feed import Feed, LogSource, OnWake, own_key

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session


class StreamFeed(Feed):
    """Replay. Continues at its position when its session is resumed."""

    __slots__ = ("topic_filter",)

    def __init__(
        self,
        session: "Session",
        source: LogSource,
        topic_filter: str,
        seen: int,
        in_flight: Iterable[int] = (),
    ) -> None:
        super().__init__(session, source, seen, in_flight, own_key(source, topic_filter))
        self.topic_filter = topic_filter

    def attach(self, resend: dict[int, tuple[int, int]], on_wake: OnWake, missed_qos0: bool = False) -> int:
        """Attach as `Feed.attach`; nothing counts as missed, at any QoS."""
        gap = super().attach(resend, on_wake, missed_qos0=True)
        if gap:
            self.lost(self.log.start_offset)
        return gap

    def lost(self, first_left: int) -> None:
        self.gap = first_left
