"""Documents that are written behind the event loop's back: one transaction at a time, by a thread; documents
that arrive during one are part of the next."""

import functools
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.thread_work import ThreadWork
from timestone.errors import NotLeader
from timestone.fronts import Documents

_RETRY_S = 1.0


Document = bytes | None | Callable[[], bytes]
"""A document, None to delete it, or what encodes it as it is then."""


class WriteBehind:
    """The way of one space of documents to the disk. Used by the event loop's thread only."""

    def __init__(
        self, documents: Documents, space: str, loop: Loop, executor: Executor, *, log: logging.Logger
    ) -> None:
        """`executor` has one thread, so that transactions end in the order in which they began."""
        self._documents = documents
        self._space = space
        self._loop = loop
        self._executor = executor
        self._log = log
        self._work = ThreadWork(loop)
        self._pending: dict[str, Document] = {}
        self._waiting: list[Callable[[], None]] = []
        self._writing: tuple[dict[str, bytes | None], list[Callable[[], None]]] | None = None

    @property
    def saved(self) -> bool:
        """Return whether nothing waits to be written."""
        return not self._pending and self._writing is None

    def write(self, key: str, document: Document, then: Callable[[], None] | None = None) -> None:
        """Write a document soon, or delete it with None. `then` is called once that is durable, in the order of the
        calls; also when the disk refused: then it is logged and tried again. A function is called when the transaction
        begins: what changes several times before that is encoded once."""
        if not self._pending and self._writing is None:
            self._loop.call_soon(self._start)
        self._pending[key] = document
        if then is not None:
            self._waiting.append(then)

    def is_saved(self, key: str) -> bool:
        """Return whether no change of this document waits to be written."""
        return key not in self._pending and (self._writing is None or key not in self._writing[0])

    def once_saved(self, key: str | None, then: Callable[[], None]) -> None:
        """Call `then` once the document is durable as it was last written, at once if it is. key: None for all of
        them."""
        if self._pending if key is None else key in self._pending:
            self._waiting.append(then)
        elif self._writing is not None and (key is None or key in self._writing[0]):
            self._writing[1].append(then)
        else:
            then()

    def _start(self) -> None:
        if self._writing is not None or not self._pending:
            return
        items = {key: one() if callable(one) else one for key, one in self._pending.items()}
        self._writing = (items, self._waiting)
        self._pending, self._waiting = {}, []
        put = functools.partial(self._documents.put_many, self._space, items)
        self._work.run(self._executor, put, self._written)

    def _written(self, error: Exception | None) -> None:
        assert self._writing is not None
        (items, waiting), self._writing = self._writing, None
        if error is not None:
            # What they are about continues; what is at stake is a restart before the next attempt. At another
            # leader that has what it needs of the log.
            level = logging.DEBUG if isinstance(error, NotLeader) else logging.ERROR
            self._log.log(level, "could not save %d of %s: %s", len(items), self._space, error)
            self._pending = {**items, **self._pending}
            self._loop.call_later(_RETRY_S, self._start)
        for then in waiting:
            try:
                then()
            except Exception:
                # A fault of ours about one client: the others wait for the disk, too, and so does what comes next.
                self._log.exception("going on after a save failed")
        if error is None and self._pending:
            self._start()
