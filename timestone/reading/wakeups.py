"""Parked readers of a log, and which of them an append wakes.

A parked reader costs an entry in a dict: no timer, no polling, no system call. An append wakes the parked readers of
its topics with the first offset that concerns each; the others cost nothing. Which readers want a topic is computed
once for each topic id and cached until a reader is added or removed.

A reader taken out of the parked set must be called: `published` returns the calls to make, and the log makes them once
it holds no lock."""

import logging
from collections.abc import Collection, Iterable
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from timestone.filters import FilterTree, is_wildcard
from timestone.format.topics import TopicDictionary
from timestone.kernel import loops

_LOGGER = logging.getLogger("timestone")


class Waiter(Protocol):
    """Object that can be parked; hashable by identity."""

    def wake(self, first_offset: int) -> None:
        """Called once after a successful park, by the appending thread, which it must not block."""


Woken: TypeAlias = tuple[Waiter, int]
"""A waiter that was taken out of the parked set and has to be woken, with the first offset that concerns it."""


class _Interest:
    """Filters of one waiter. A waiter that replaces another takes over this object, so that the filters that stay are
    not added again."""

    __slots__ = ("filters", "waiter")

    def __init__(self, waiter: Waiter, filters: Collection[str] | None) -> None:
        self.waiter = waiter
        self.filters = filters


class Wakeups(loops.ParkedWaiters):
    """Registered waiters of one log. All methods may be called by any thread."""

    def __init__(self, topics: TopicDictionary) -> None:
        self.lock = loops.Lock()
        """Guards the published end of the log together with the parked set, so no append slips between."""
        self._topics = topics
        self._interests: dict[Waiter, _Interest] = {}
        self._tree: FilterTree[_Interest] = FilterTree()
        self.parked: set[Waiter] = set()
        """The parked waiters. Other modules only test whether the set is empty, under `lock`."""
        self._parked_for_all: set[Waiter] = set()
        self._wanting: dict[int, tuple[_Interest, ...]] = {}

    def register(self, waiter: Waiter, filters: Collection[str] | None) -> None:
        """Register a waiter for topics that match one of the filters, or for everything. Replaces its earlier filters.
        The collection itself is kept."""
        with self.lock:
            self._forget(waiter)
            interest = self._interests[waiter] = _Interest(waiter, filters)
            for topic_filter in filters or ():
                self._tree.add(topic_filter, interest)
            self._changed(filters or ())

    def replace(
        self,
        old: Waiter,
        new: Waiter,
        filters: Collection[str],
        *,
        added: Iterable[str],
        removed: Iterable[str],
    ) -> bool:
        """Register `new` in place of `old`; it is not parked. `filters` are those of `old`, with some added and some
        removed, and only these cost time. Return False, without a change, if `old` is not registered."""
        with self.lock:
            interest = self._interests.pop(old, None)
            if interest is None:
                return False
            self._unpark(old)
            interest.waiter = new
            self._interests[new] = interest
            interest.filters = filters
            for topic_filter in removed:
                self._tree.remove(topic_filter, interest)
            for topic_filter in added:
                self._tree.add(topic_filter, interest)
            self._changed(removed)
            self._changed(added)
            return True

    def unregister(self, waiter: Waiter) -> None:
        with self.lock:
            self._forget(waiter)

    def park(self, waiter: Waiter) -> None:
        """Park a waiter until the next append. The caller holds `lock` and has checked that the waiter has read
        everything."""
        self.parked.add(waiter)
        if self._interests[waiter].filters is None:
            self._parked_for_all.add(waiter)

    def unpark(self, waiter: Waiter) -> None:
        """Take a waiter out of the parked set; afterwards nothing wakes it."""
        with self.lock:
            self._unpark(waiter)

    def published(self, first_offset: int, topic_ids: int | npt.NDArray[np.unsignedinteger]) -> list[Woken]:
        """Return the parked waiters that new records concern, each with its first offset, and take them out of the
        parked set. topic_ids: one topic for all records, or one for each. The caller holds `lock`."""
        parked = self.parked
        woken: list[Woken] = []
        if self._parked_for_all:
            woken = [(waiter, first_offset) for waiter in self._parked_for_all]
            parked -= self._parked_for_all
            self._parked_for_all.clear()
        if not parked:
            return woken
        for topic, at in ((topic_ids, 0),) if isinstance(topic_ids, int) else _first_places(topic_ids):
            wanting = self._wanting.get(topic)
            for interest in self._now_wanting(topic) if wanting is None else wanting:
                waiter = interest.waiter
                if waiter in parked:
                    parked.discard(waiter)
                    woken.append((waiter, first_offset + at))
        return woken

    def wake_all(self, end_offset: int) -> list[Woken]:
        """Take all waiters out of the parked set and return them with the end offset, because the log closes."""
        with self.lock:
            woken = [(waiter, end_offset) for waiter in self.parked]
            self.parked.clear()
            self._parked_for_all.clear()
        return woken

    @staticmethod
    def wake(woken: Iterable[Woken]) -> None:
        """Make the calls that the other methods have returned. An error of one reader's callback is logged: the append
        has happened, and the other readers wait."""
        for waiter, first_offset in woken:
            try:
                waiter.wake(first_offset)
            except Exception:
                _LOGGER.exception("a reader could not be woken")

    def _now_wanting(self, topic_id: int) -> tuple[_Interest, ...]:
        name = self._topics.name(topic_id)
        wanting = tuple(dict.fromkeys(self._tree.matches(name))) if name is not None else ()
        self._wanting[topic_id] = wanting
        return wanting

    def _forget(self, waiter: Waiter) -> None:
        interest = self._interests.pop(waiter, None)
        if interest is not None and interest.filters:
            for topic_filter in interest.filters:
                self._tree.remove(topic_filter, interest)
            self._changed(interest.filters)
        self._unpark(waiter)

    def _unpark(self, waiter: Waiter) -> None:
        self.parked.discard(waiter)
        self._parked_for_all.discard(waiter)

    def _changed(self, filters: Iterable[str]) -> None:
        """Drop the cached waiters of the topics that these filters can match: of one topic for a filter without
        wildcards, so that 10,000 clients that subscribe one after the other do not slow each other down."""
        for topic_filter in filters:
            if is_wildcard(topic_filter):
                self._wanting.clear()
                return
            known = self._topics.find(topic_filter)
            if known is not None:
                self._wanting.pop(known, None)


def _first_places(topic_ids: npt.NDArray[np.unsignedinteger]) -> list[tuple[int, int]]:
    """Return the distinct topics of a batch, each with the place of its first record, by place."""
    firsts: dict[int, int] = {}
    for at, topic in enumerate(topic_ids.tolist()):
        if topic not in firsts:
            firsts[topic] = at
    return list(firsts.items())
