"""A store with a separate clock that deletes, compacts and compresses only on request."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.step_clock import StepClock
from timestone import Log, LogConfig, Store
from timestone.disk.catalog import Catalog
from timestone.format.names import CATALOG_NAME
from timestone.segment import Segment

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class CountingFiles(FaultyFiles):
    """Remembers which descriptors were closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[int] = []

    def close(self, fd: int) -> None:
        self.closed.append(fd)
        super().close(fd)


class ExpiringStore:
    """The store, and its log with small segments."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.settings = {"delete_delay_ms": 10**9, **settings}
        self.clock = StepClock()
        self.files = CountingFiles()
        self.store: Store = self._opened()

    def _opened(self) -> Store:
        store = timestone.open(
            self.path,
            ack="written",
            files=self.files,
            clock=self.clock,
            min_free_bytes=0,
            **self.settings,
        )
        store.maintenance.stop()  # the tests call all background work
        return store

    def log(self, **settings: Any) -> Log:
        return self.store.log("a", config=LogConfig(**{"segment_entries": 4, **settings}))

    def fill(self, log: Log, count: int, size: int = 100) -> None:
        """Append, and wait until all full segments are sealed and their files closed."""
        for _ in range(count):
            log.append(bytes(size))
        self.store.sealer.settle()

    def seal(self, log: Log) -> None:
        log.roll()
        self.store.sealer.settle()

    def close(self) -> None:
        """Close the store with all segments sealed, so that each start has segments of its own."""
        self.store.log("a").roll()
        self.store.close()

    def reopen(self) -> Log:
        self.close()
        return self.opened_again()

    def rebooted(self, boot_id: bytes, off_ms: int = 0) -> Log:
        """Close the store, restart the machine, open the store again; the machine was off for this time."""
        self.close()
        self.clock.step(off_ms)
        self.clock.reboot(boot_id)
        return self.opened_again()

    @contextmanager
    def closed_catalog(self) -> Iterator[Catalog]:
        """Open the catalogue of the closed store, to change it; continue with `opened_again`."""
        self.close()
        catalog = Catalog(self.path / CATALOG_NAME)
        yield catalog
        catalog.close()

    def opened_again(self) -> Log:
        self.store = self._opened()
        return self.store.log("a", create=False)

    def killed(self) -> Log:
        """Let the process die and another one open the store."""
        self.files.abandon()
        self.store.abandon()
        self.files = CountingFiles()
        self.store = self._opened()
        return self.store.log("a", create=False)


def bases(log: Log) -> list[int]:
    return [base for base, _ in log.segment_bounds()]


def disk_bytes(segment: Segment) -> int:
    return sum(path.stat().st_size for path in (segment.index_path, segment.segment_path))


@contextmanager
def expiring_store(path: Path) -> Iterator[ExpiringStore]:
    """Yield a store in a new directory, until the end of the block."""
    place = ExpiringStore(path)
    try:
        yield place
    finally:
        place.store.close()
