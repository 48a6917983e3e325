"""Health of a server, for probes of service managers and load balancers: live and ready, each check by name."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from timestone.errors import TimestoneError
from timestone.fronts import Checked
from timestone.store import Store

from ..units import format_bytes
from .process_metrics import LoopWatch

_LATE_S = 1.0
"""An event loop that is later than this is not live."""

Checks = Mapping[str, str | None]
"""By name of a check the reason why it fails, or None."""


class Health:
    """Checks of one server."""

    def __init__(self, store: Store, parts: Sequence[Any], watch: LoopWatch) -> None:
        self._store = store
        self._fronts = [part for part in parts if isinstance(part, Checked)]
        self._watch = watch

    def live(self) -> Checks:
        """Return whether the event loop turns. One that does not turn at all gives no answer."""
        late_s = self._watch.last_late_ns / 1e9
        late = f"its last call was {late_s:.1f} s late, limit {_LATE_S:g} s"
        return {"event_loop": late if late_s > _LATE_S else None}

    async def ready(self) -> Checks:
        """Return whether clients can connect and what they publish can be written."""
        of_fronts = {
            f"{front.name}_{name}": why for front in self._fronts for name, why in front.checks().items()
        }
        return {**await asyncio.to_thread(self._of_store), **of_fronts}

    def _of_store(self) -> Checks:
        """Look at the disk."""
        try:
            logs = [self._store.log(*name, create=False) for name in self._store.log_names()]
            free_bytes = self._store.files.free_bytes(self._store.path)
        except (OSError, TimestoneError) as error:
            return {"store_open": str(error)}
        least_bytes = self._store.config.min_free_bytes
        full = f"{format_bytes(free_bytes)} free, appends need {format_bytes(least_bytes)} (min_free_bytes)"
        failed = [str(log.failure) for log in logs if log.failure is not None]
        return {
            "store_open": None,
            "free_space": full if free_bytes < least_bytes else None,
            "logs_writable": "; ".join(failed) or None,
        }


def report(checks: Checks) -> tuple[bool, str]:
    """Return whether all checks pass, and the report as a line of JSON."""
    passed = all(why is None for why in checks.values())
    document = {
        "ok": passed,
        "checks": {
            name: {"ok": True} if why is None else {"ok": False, "reason": why}
            for name, why in checks.items()
        },
    }
    return passed, json.dumps(document) + "\n"
