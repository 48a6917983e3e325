"""Sources of the console: the store as files, its running server, and the tables of a pipeline. Handed to each call of
the API; usable from any thread."""

import dataclasses
import os
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from timestone.disk.files import Files
from timestone.disk.lock import is_owned
from timestone.errors import TimestoneError, UnknownLog
from timestone.format.names import LOCK_NAME, log_folder
from timestone.repair.inspection_report import LogReport
from timestone.repair.log_inspection import LogInspection
from timestone.view import LogView, StoreView

from .config import ConsoleConfig, Role
from .http.sessions import Session, Sessions
from .problems import NoServer, Problem, ServerRefused
from .reading.client_table import ClientTable
from .reading.log_damage import LogDamage
from .reading.samples import Samples
from .reading.topic_table import TopicTables

_STATUS_S, _REPORT_S, _SIZE_S = 0.5, 2.0, 10.0
"""How old what is kept may be."""
_STATUS_OLD_S = 10.0
"""A look older than this gives no rates."""
_REPORT_COUNT = 8
_ASKED_COUNT = 100
"""Topics in one question to the server."""
_ANSWER_COUNT, _ANSWER_S = 10_000, 5.0
"""Most answers about topics that a session keeps, and for how long: the rules of the server may change."""
_SIDE_FILES = "parquet"
"""Folder of the files that `timestone parquet` writes."""


class Server(Protocol):
    """Control socket of the store. Usable from any thread."""

    def call(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a request. Raises NoServer, ServerRefused."""

    def clients(self) -> list[dict[str, Any]]:
        """Return all connected clients, as the result of the request `clients` has them. Raises as `call`."""


class Away(Protocol):
    """Stored sessions of clients, as plain values: `key`, `client`, `user`, `expiry_s` (null: never), `away_s` (null:
    its client was connected), `size_bytes`, `in_flight`, and `subscriptions` with `filter`, `qos` and `feeds`, each
    with `log`, `partition` and `offset`. Usable from any thread."""

    def page(self, after: str, limit: int, text: str) -> tuple[list[dict[str, Any]], str | None]:
        """Return sessions behind a key, by client id, and the key to continue behind; None at the end."""

    def of(self, client: str, user: str | None) -> dict[str, Any] | None:
        """Return the session of a client; None if there is none."""


class Tables(Protocol):
    """Tables of a pipeline that reads the store, as plain values. Usable from any thread."""

    def pipeline(self) -> Mapping[str, Any]:
        """Return the fields of `Pipeline`."""

    def dead_letters(self, after: str, limit: int, reason: str | None) -> Mapping[str, Any]:
        """Return `letters`, the newest first, with `log`, `partition`, `offset`, `received_us`, `topic`, `value` and
        `problem`; `next`, `reasons` and `fields`. Raises ValueError for a cursor that is not valid any more."""


class Sources:
    """All that the API answers from."""

    def __init__(
        self,
        view: StoreView,
        config: ConsoleConfig,
        sessions: Sessions,
        *,
        server: Server,
        away: Away,
        tables: Tables | None,
        version: str,
    ) -> None:
        self.view = view
        self.config = config
        self.sessions = sessions
        self.server = server
        self.away = away
        self.tables = tables
        self.version = version
        self.samples = Samples(view)
        self.topics = TopicTables()
        self.damage = LogDamage(view)
        self.clients = ClientTable(self.server.clients)
        self.streams = 0
        """Open streams of all sessions."""
        self._statuses: tuple[dict[str, Any] | None, dict[str, Any] | None] = None, None
        self._status_s = -1.0
        self._status_lock = threading.Lock()
        self._reports: dict[tuple[str, int], tuple[float, float, LogReport]] = {}
        """By log: when it was made, how long that took, and the report."""
        self._reports_lock = threading.Lock()
        self._size = -_SIZE_S, 0
        self._size_lock = threading.Lock()

    def log(self, name: str, partition: int = 0) -> LogView:
        """Return a log, refreshed. Raises Problem."""
        try:
            return self.view.log(name, partition)
        except UnknownLog as error:
            raise Problem("not-found", str(error)) from None

    def status(self) -> dict[str, Any] | None:
        """Return what the running server says of itself, at most half a second old; None without a server."""
        return self.statuses()[1]

    def statuses(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the last two looks at the server; None for one without a server, or from too long ago."""
        with self._status_lock:
            passed_s = time.monotonic() - self._status_s
            if passed_s > _STATUS_S:
                before = self._statuses[1] if passed_s < _STATUS_OLD_S else None
                try:
                    found: dict[str, Any] | None = self.server.call("status")
                except (NoServer, ServerRefused):
                    found = None
                self._statuses, self._status_s = (before, found), time.monotonic()
            return self._statuses

    def logged_in(self, user: str, password: str, address: str) -> Session:
        """Return a new session of a user whose password the server has checked. Raises Problem."""
        role = self.config.users.get(user)
        try:
            # Also for a user without a role: the time of an answer must not tell who has one.
            answer = self.server.call("login", user=user, password=password, address=address)
        except NoServer:
            raise Problem(
                "no-server", "passwords are checked by the server, and none runs on this store"
            ) from None
        except ServerRefused as error:
            raise Problem("login-failed", str(error)) from None
        if answer.get("is_allowed") is not True or role is None:
            raise Problem(
                "login-failed", "user or password are wrong, or the user has no role in [console.users]"
            )
        return Session(user, role)

    def may_read(self, session: Session, topics: Collection[str]) -> dict[str, bool]:
        """Return for each topic or topic filter whether a caller may see payloads of it. A topic without a name is "".
        The rules are those of the server, so nothing is shown while it does not answer."""
        if session.all_payloads:
            return dict.fromkeys(topics, True)
        if session.role < Role.READER:
            return dict.fromkeys(topics, False)
        now_s = time.monotonic()
        if now_s - session.asked_s > _ANSWER_S or len(session.may_read) > _ANSWER_COUNT:
            session.may_read, session.asked_s = {}, now_s
        known = session.may_read
        unknown = [one for one in topics if one not in known]
        for first in range(0, len(unknown), _ASKED_COUNT):
            asked = unknown[first : first + _ASKED_COUNT]
            try:
                answers = self.server.call("may_read", user=session.user, topics=asked)["may_read"]
            except (NoServer, ServerRefused, KeyError):
                break
            known.update(zip(asked, map(bool, answers), strict=True))
        return {one: known.get(one, False) for one in topics}

    def inspected(self, name: str, partition: int) -> LogReport:
        """Return the report of one log, at most some seconds old: it examines segments that grow. Raises Problem."""
        with self._reports_lock:
            kept = self._reports.get((name, partition))
            if kept is not None and time.monotonic() - kept[0] < max(_REPORT_S, 10 * kept[1]):
                return kept[2]
            began_s = time.monotonic()
            self.log(name, partition)
            row = self.view.row(name, partition)
            found = LogInspection(
                Files(), self.view.path, (name, partition), row, deep=False, progress=None, topics=False
            ).report()
            if len(self._reports) >= _REPORT_COUNT:
                self._reports.clear()
            self._reports[name, partition] = time.monotonic(), time.monotonic() - began_s, found
            return found

    def settings_of(self, name: str, partition: int) -> list[dict[str, Any]]:
        """Return the settings of a log: name, value, default, help. Empty without a catalogue that has it."""
        row = self.view.row(name, partition)
        if row is None:
            return []
        return [
            {
                "name": one.name,
                "value": getattr(row.config, one.name),
                "default": one.default,
                "help": one.metadata["help"],
            }
            for one in dataclasses.fields(row.config)
        ]

    def holders(self, name: str, partition: int) -> list[tuple[str, int]]:
        """Return the readers of a log that hold records, and the offset from which on they do."""
        try:
            readers = self.view.readers()
        except (TimestoneError, OSError):
            return []
        return [
            (reader.name, found.offset)
            for reader, found in readers.items()
            if (reader.log, reader.partition) == (name, partition) and found.pin is not None
        ]

    def side_files(self, name: str, partition: int) -> set[int]:
        """Return the base offsets of the segments that have a Parquet file beside them."""
        try:
            listed = os.listdir(self.view.path / _SIDE_FILES / log_folder(name, partition))
        except OSError:
            return set()
        bases = (one.partition("-")[0] for one in listed if one.endswith(".parquet"))
        return {int(base) for base in bases if base.isascii() and base.isdigit()}

    def is_owned(self) -> bool:
        """Return whether a process owns the store now."""
        return is_owned(Files(), self.view.path / LOCK_NAME)

    def store_bytes(self) -> int:
        """Return the size of the files of all logs, at most some seconds old."""
        with self._size_lock:
            if time.monotonic() - self._size[0] > _SIZE_S:
                total = 0
                for log in self.view.log_names(server=True):
                    with suppress(OSError), os.scandir(self.view.path / log_folder(*log)) as entries:
                        total += sum(entry.stat().st_size for entry in entries if entry.is_file())
                self._size = time.monotonic(), total
            return self._size[1]
