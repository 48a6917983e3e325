"""Delivery of one plain record that was appended alone: the same packet as `delivery.packing.pack` makes, in a fraction
of the time; and of packets that another client was just sent. Compiled only (`_kernel.pyx`): without the kernel, all
deliveries are batches."""

from collections.abc import Callable
from typing import Any


class ServedSession:
    """Fields of a session that are read or changed for each delivery."""

    __slots__ = (
        "client", "expiry_s", "feeds", "in_flight", "no_local", "outstanding", "packet_ids", "released", "saving_count",
    )  # fmt: skip


class ServedFeed:
    """Fields of a feed, likewise."""

    __slots__ = (
        "forms", "gap", "log", "qos0_from", "reader", "resend", "session", "state", "takes_singles", "tells_place",
        "window",
    )  # fmt: skip


class SingleDelivery:
    """Sender of single records. Event-loop thread only."""

    def __init__(
        self,
        parked: object,
        in_flight: type[tuple[Any, int, int]],
        changed: Callable[[Any], None],
        counts: Any,
        traces: Any,
        wake_type: type[Any],
    ) -> None:
        """parked: state of a feed whose reader is parked. in_flight: the class of an unacknowledged delivery. changed:
        called with a session that outlives its connection, when its offsets have moved. counts: the `DeliveryCounts`
        of what is sent. wake_type: `FeedWake`."""

    def serve(self, woken: list[tuple[Any, int]], began_ns: int) -> list[tuple[Any, int]]:
        """Send to the readers of an append that are of parked feeds; return the others, and those with more to read.
        began_ns: start of the append, by `time.perf_counter_ns`."""
        return woken

    def send(self, feed: Any) -> int:
        """Send what was shared to the client of a feed that is at the same place and takes the same, or the last record
        of a log if the reader is in front of it, and park the reader. Return 0, with nothing changed, if neither is so
        or the record needs more than that; 1 if the feed is parked; 2 if there is more to read.

        feed: a `Feed`. Raises StoreClosed, before or after sending."""
        return 0

    def share(self, place: tuple[Any, ...], key: tuple[Any, ...], sent: tuple[bytes, int, int]) -> None:
        """Note what was sent to a client that others may get as well, at QoS 0. place, key: of the `SharedBatch`. sent:
        packets, their number, and the next offset to read."""
