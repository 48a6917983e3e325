"""The server, as the handlers see it: its parts, and calls that concern more than one packet. Implemented by
`mqtt_front.broker.Broker`."""

import logging
from collections.abc import Callable
from typing import Protocol

from mqtt_front.delivery.system_topics import SystemTopics
from mqtt_front.metrics import Counted
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.thread_work import Result
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.stored_state import StoredState
from timestone.fronts import Report
from timestone_access.throttled_log import ThrottledLog


class Server(Counted, Protocol):
    """The server, as a handler sees it."""

    loop: Loop
    log: logging.Logger
    throttled_log: ThrottledLog
    receipts: Receipts
    system: SystemTopics
    state: StoredState
    stopping: bool
    report: Report | None

    def new_client_id(self) -> str: ...
    def read(self, work: Callable[[], Result], then: Callable[[Result | Exception], None]) -> None: ...
