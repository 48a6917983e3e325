"""A catalogue whose transactions take as long as a test wants, so that anything that must wait for one has time to go
wrong."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.waiting import TIMEOUT_S
from timestone.store import Store


class StalledDocuments:
    """The documents of a store. `standing_still` keeps each transaction that begins in its block from ending."""

    def __init__(self, store: Store) -> None:
        self._put_many = store.documents.put_many
        self._flowing = threading.Event()
        self._flowing.set()
        store.documents.put_many = self._put  # type: ignore[method-assign]

    def _put(self, space: str, items: Mapping[str, bytes | None]) -> None:
        assert self._flowing.wait(2 * TIMEOUT_S)
        self._put_many(space, items)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Make no transaction durable until the block ends."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()
