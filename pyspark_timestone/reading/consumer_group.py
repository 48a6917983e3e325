"""Consumer group of a query: its progress in the log, exclusive use of its name, and the time that retention waits for
it.

Spark's checkpoint alone decides where a query continues. Commits here are for people and for retention: they follow the
batch that they are about, so they may lag behind and never run ahead."""

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

import timestone
from pyspark_timestone.errors import GroupInUse, SparkSourceError
from pyspark_timestone.flight.remote_store import RemoteStore
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.flight_server import FlightServer
from timestone import Pin, ReaderId, StoreView
from timestone.disk import access
from timestone.errors import TimestoneError

FOLDER = "groups"
_PATIENCE_S = 10.0
"""Time that a starting query waits for the process of the one before, which Spark has asked to end."""
_LOOK_S = 0.05
_log = logging.getLogger(__name__)


class ConsumerGroup:
    """Group of one query. Held by one process at a time, until that ends."""

    def __init__(self, store: Path | FlightServer, name: str, pin: Pin | None) -> None:
        self._store = store
        self._name = name
        self._pin = pin
        self._fd: int | None = None

    def join(self) -> None:
        """Take the group's name. Raises GroupInUse when another query has it, NotAStore, OSError.

        At a server the name is not taken: two queries under it overwrite each other's progress, which neither needs."""
        if self._fd is not None or isinstance(self._store, FlightServer):
            return
        timestone.view(self._store).close()  # otherwise a folder would be created in one that is not a store
        folder = self._store / FOLDER
        access.make_folders(folder)
        digest = hashlib.blake2b(self._name.encode(), digest_size=16).hexdigest()
        fd = access.create_file(folder / f"{digest}.lock", exclusive=False)
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(fd):
            if time.monotonic() > deadline:
                os.close(fd)
                raise GroupInUse(
                    f"another query reads {self._store} as group {self._name!r}; each needs a name of its own"
                )
            time.sleep(_LOOK_S)
        self._fd = fd

    def leave(self) -> None:
        """Let another query have the name."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def commit(self, positions: Mapping[LogPartition, int]) -> None:
        """Commit the next offset of each partition. A failure is logged, and the next batch commits again: the query
        does not depend on it."""
        try:
            with self._view() as view:
                known = {LogPartition(*one) for one in view.log_names(server=True)}
                offsets = {
                    ReaderId(*key, self._name): offset for key, offset in positions.items() if key in known
                }
                view.commit_readers(offsets, pin=self._pin)
        except (OSError, TimestoneError, SparkSourceError) as error:
            _log.warning("group %s: its progress is not in the log: %s", self._name, error)

    def _view(self) -> StoreView | RemoteStore:
        if isinstance(self._store, FlightServer):
            return RemoteStore(self._store)
        return timestone.view(self._store)


def _locked(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
