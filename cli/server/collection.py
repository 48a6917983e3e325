"""All metrics of a running server: of its parts, its event loop, its store and its process. For the page of metrics and
for the log of samples."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from timestone.fronts import Measured
from timestone.metrics.metric import Metric, metric
from timestone.store import Store

from .exposition import named
from .process_metrics import LoopWatch, process_metrics
from .store_metrics import store_metrics

_log = logging.getLogger("timestone.metrics")
_SKIPPED = "Samples and events of the server that could not be written to its logs."


class Counted(Protocol):
    """Part of the server with metrics: a front, or the tier."""

    name: ClassVar[str]

    def status(self) -> dict[str, Any]: ...


class Collection:
    """Collects the metrics of one server. Event-loop thread only."""

    def __init__(self, store: Store, parts: Sequence[Counted]) -> None:
        self.store = store
        self.parts = parts
        self.watch = LoopWatch()
        """Runs from the start of the first service that reports its figures until the end of one."""
        self.skipped = 0
        """Records of the server about itself that could not be written."""
        self.at_the_store = asyncio.Lock()
        """One look at the disk at a time: it needs a thread, and the fronts need the others."""

    async def metrics(self) -> list[Metric]:
        """Return the current metrics with their full names."""
        found = [one for part in self.parts for one in named(part.name, _metrics_of(part))]
        found.append(metric("timestone_records_skipped", "counter", _SKIPPED, self.skipped))
        async with self.at_the_store:
            return [*found, *self.watch.metrics(), *await asyncio.to_thread(self._of_disk)]

    def _of_disk(self) -> list[Metric]:
        """Return what takes a look at the disk. Not in the event loop's thread."""
        found = store_metrics(self.store)
        try:
            found += process_metrics()
        except OSError as error:
            _log.warning("the metrics lack those of the process: %s", error)
        return found


def _metrics_of(part: Counted) -> Sequence[Metric]:
    """Return the metrics of a part; the numbers of its status where it does not say what they are."""
    if isinstance(part, Measured):
        return part.metrics()
    return [
        metric(name, "unknown", f"{name} of {part.name}.", value)
        for name, value in part.status().items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
