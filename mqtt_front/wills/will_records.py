"""Where wills are in the logs: so that one whose publishing was interrupted by a kill is not published twice."""

from typing import NamedTuple

import numpy as np

from mqtt_front.errors import MqttError
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel.topic_cache import TOPIC_BITS
from mqtt_front.sessions.log_batches import batches_since
from timestone.record import HeaderKind


class Place(NamedTuple):
    """The end of a log when a will was about to be published: its record is not before that."""

    log: str
    offset: int


class WillRecords:
    """The records of wills, as far as they are looked for."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def place(self, topic: str, session_key: str) -> Place | None:
        """Where a will of this session that is published from now on can be; None when it cannot be published."""
        try:
            code = self._router.code(topic, self._router.shares.owner(session_key))
        except MqttError:
            return None
        if code < 0:
            return None
        log = self._router.logs[code >> TOPIC_BITS]
        return Place(log.name, log.end_offset)

    def holds(self, place: Place, topic: str, key: str) -> bool:
        """Is the will with this key in its log? Reads the disk."""
        wanted = key.encode()
        for log in self._router.logs:
            if log.name != place.log:
                continue
            for batch in batches_since(log, place.offset, topic):
                for number in np.flatnonzero(batch.header_lengths).tolist():
                    if any(
                        item.kind == HeaderKind.WILL and item.value == wanted
                        for item in batch.headers_of(number)
                    ):
                        return True
        return False
