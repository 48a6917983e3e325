"""What the handlers need of the server: its parts, and the calls that concern more than one packet. Implemented by
`mqtt_front.broker.Broker`."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from mqtt_front.delivery.system_topics import SystemTopics
from mqtt_front.metrics import Counts
from mqtt_front.net.client_protocol import LinkServer
from mqtt_front.retained.keeper import Retaining
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.throttled_log import Complaints
from mqtt_front.security.guard import Guard
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_store import Sessions
from mqtt_front.wills.wills import Wills

Value = TypeVar("Value")


class Server(LinkServer, Protocol):
    """The server as a handler sees it."""

    guard: Guard
    loop: Loop
    log: logging.Logger
    complaints: Complaints
    receipts: Receipts
    retaining: Retaining
    sessions: Sessions
    system: SystemTopics
    wills: Wills
    stopping: bool
    counts: Counts

    def new_client_id(self) -> str: ...
    def read(self, work: Callable[[], Value], then: Callable[[Value | Exception], None]) -> None: ...
    def restore(self, key: str, document: bytes) -> Session: ...
