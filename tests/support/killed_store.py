"""Let the owner of a store die without ending this process: its files are closed, its threads end, nothing is
written."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.faulty_files import FaultyFiles, SimulatedKill
from timestone.store import Store


def kill_store(store: Store, files: FaultyFiles) -> None:
    """Apply kill -9 to an open store, for tests that open thousands. `files` is the argument with which the store was
    opened."""
    files.dead = True
    with _deaths_are_meant():
        store.abandon()
        store.maintenance.stop()
        store.committer.stop()
        store.sealer.stop()
    files.abandon()
    store.documents.close()


@contextmanager
def _deaths_are_meant() -> Iterator[None]:
    """Let the engine's threads die of SimulatedKill; any other death of a thread is still reported."""
    report = threading.excepthook

    def hook(death: threading.ExceptHookArgs) -> None:
        if not issubclass(death.exc_type, SimulatedKill):
            report(death)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = report
