"""Which kernel does the per-message loops of the front: the compiled one, or its twin in Python.

The contracts of the functions are in `codec`, where the twins are. Choosing works as in `timestone.kernel.loops`."""

import sys
from typing import TYPE_CHECKING, Any

from mqtt_front.codec import frame, scan
from mqtt_front.kernel import publish_fast_path, topic_cache
from timestone.kernel.loops import choose

INTERFACE = 7
"""Raised with every change of a signature or result, so that a stale build beside newer sources is not used."""

_native, REASON = choose("mqtt_front.kernel._kernel", INTERFACE)
"""Why the slow path is in use; "" when it is not."""
NAME = "pure Python" if _native is None else "native"
"""Which path is in use, for a line of a report."""

if TYPE_CHECKING or _native is None:
    scan_publishes = scan.scan_publishes
    frame_record = frame.frame_record
    frame_records = frame.frame_records
    KnownTopics = topic_cache.KnownTopics
    Gathering = publish_fast_path.Gathering
else:
    scan_publishes = _native.scan_publishes
    frame_record = _native.frame_record
    frame_records = _native.frame_records
    KnownTopics = _native.KnownTopics
    Gathering = _native.Gathering

Sockets: Any = None if _native is None or sys.platform != "linux" else _native.Sockets
"""What `poller` reads sockets with; None where there is no kernel for it, or no epoll: then transports read."""
