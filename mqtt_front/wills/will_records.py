"""Search for wills in the logs, so that a will whose publishing was interrupted by a kill is not published twice."""

from typing import NamedTuple

import numpy as np

from mqtt_front.errors import MqttError
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel.topic_cache import TOPIC_BITS
from mqtt_front.sessions.log_batches import batches_since
from timestone.record import HeaderKind


class Place(NamedTuple):
    """End of a log when a will was about to be published: its record is not before that."""

    log: str
    offset: int


class WillRecords:
    """Records of wills in the logs."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def place(self, topic: str, session_key: str) -> Place | None:
        """Return where a will of this session would be published from now on; None if it cannot be published."""
        try:
            code = self._router.code(topic, self._router.shares.owner(session_key))
        except MqttError:
            return None
        if code < 0:
            return None
        log = self._router.logs[code >> TOPIC_BITS]
        return Place(log.key, log.end_offset)

    def holds(self, place: Place, topic: str, key: str) -> bool:
        """Return whether the will with this key is in its log. Reads the disk."""
        wanted = key.encode()
        for log in self._router.logs:
            if log.key != place.log:
                continue
            for batch in batches_since(log, place.offset, topic):
                for number in np.flatnonzero(batch.header_lengths).tolist():
                    if any(
                        item.kind == HeaderKind.WILL and item.value == wanted
                        for item in batch.headers_of(number)
                    ):
                        return True
        return False
