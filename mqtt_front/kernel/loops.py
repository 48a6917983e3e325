"""Choice between the compiled kernel for per-message loops and its Python twin. The contracts of the functions are
in `codec`, with the twins. The choice works as in `timestone.kernel.loops`."""

import sys
from typing import TYPE_CHECKING, Any

from mqtt_front.codec import frame, scan
from mqtt_front.kernel import publish_fast_path, single_delivery, topic_cache
from timestone.kernel.loops import choose

INTERFACE = 19
"""Incremented with every change of a signature or result, so that a stale build is not used with newer sources."""

_native, REASON = choose("mqtt_front.kernel._kernel", INTERFACE)
"""Why the Python twin is in use; "" if it is not."""
NAME = "pure Python" if _native is None else "native"
"""Name of the kernel in use, for reports."""

_NAMES = (
    "AdmittedCount", "CollectedTurn", "PolledClient", "PublishFastPath", "ServedFeed", "ServedSession",
    "SingleDelivery", "TopicCache", "discharge", "frame_records", "scan_publishes",
)  # fmt: skip
if TYPE_CHECKING or _native is None:
    scan_publishes = scan.scan_publishes
    frame_records = frame.frame_records
    TopicCache = topic_cache.TopicCache
    PublishFastPath = publish_fast_path.PublishFastPath
    ServedFeed = single_delivery.ServedFeed
    ServedSession = single_delivery.ServedSession
    SingleDelivery = single_delivery.SingleDelivery
    PolledClient = publish_fast_path.PolledClient
    AdmittedCount = publish_fast_path.AdmittedCount
    CollectedTurn = publish_fast_path.CollectedTurn
    discharge = publish_fast_path.discharge
else:
    globals().update({name: getattr(_native, name) for name in _NAMES})

Sockets: Any = None if _native is None or sys.platform != "linux" else _native.Sockets
"""Compiled reader of sockets for `poller`; None without the kernel or without epoll, where transports read."""
