"""Retained messages of the shards of a cluster that other servers keep: read from what this node has of them, and then
kept up to date from its copies of the logs. One view a shard serves all homes of this node."""

import logging
from collections.abc import Sequence

from mqtt_front.retained.keeper import Retaining
from mqtt_front.retained.messages import RetainedMessages
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.threads import Threads
from mqtt_front.runtime.user_share import Shares
from timestone.fronts import Documents, Partitions
from timestone.log import Log

_NO_LIMIT = 1 << 62


class _Read:
    """Documents that are not written."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def items(self, space: str) -> dict[str, bytes]:
        return self._documents.items(space)

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        """Ignore what another server stores."""


class RetainedViews:
    """Views by shard. Event-loop thread only, except for `open`."""

    def __init__(self, loop: Loop, log: logging.Logger, shares: Shares) -> None:
        """shares: by which the messages count for their owners."""
        self._loop, self._log, self._shares = loop, log, shares
        self._threads = Threads()
        self._time = PassingTime()
        self._views: dict[int, tuple[Retaining, Sequence[RetainedMessages]]] = {}

    def open(self, partitions: Partitions, logs: Sequence[Log]) -> dict[str, RetainedMessages]:
        """Return the retained messages of the logs of all shards but the home, by key. Reads the disk for those that
        were not open."""
        found: dict[str, RetainedMessages] = {}
        for shard in range(partitions.count):
            if shard == partitions.home:
                continue
            if shard not in self._views:
                self._views.setdefault(shard, self._opened(partitions, shard, logs))
            found |= {one.log.key: one for one in self._views[shard][1]}
        return found

    def _opened(
        self, partitions: Partitions, shard: int, logs: Sequence[Log]
    ) -> tuple[Retaining, Sequence[RetainedMessages]]:
        messages = [RetainedMessages(log, is_view=True) for log in logs if log.partition == shard]
        view = Retaining(
            messages,
            _Read(partitions.documents(shard)),
            self._loop,
            self._threads.save,
            self._threads.read,
            count_limit=_NO_LIMIT,
            bytes_limit=_NO_LIMIT,
            log=self._log,
            time=self._time,
            shares=self._shares,
        )
        view.load()
        return view, messages

    def follow(self) -> None:
        """Take into account what has come or expired. Called at intervals: later, retention may have deleted it."""
        self._time.look()
        for view, _ in self._views.values():
            view.follow()
            view.expire()
            view.forget_changes()

    def end(self) -> None:
        """End the threads."""
        self._threads.end()
