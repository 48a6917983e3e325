"""The tier of a store as a service of `serve`: starts and stops with the fronts, and has figures like them."""

import asyncio
from typing import Any, ClassVar

from timestone.metrics.metric import Kind, Metric, metric
from timestone_tiering.tier import StoreTier

from ..units import format_bytes

_METRICS: dict[str, tuple[Kind, str]] = {
    "running": ("gauge", "1 while sealed segments are uploaded, 0 while the bucket cannot be claimed."),
    "uploaded_bytes": ("counter", "Bytes uploaded."),
    "uploaded_segments": ("counter", "Segments uploaded."),
    "errors": ("counter", "Failed calls of the bucket."),
    "stored_bytes": ("gauge", "Bytes of the store that are in the bucket."),
    "waiting_bytes": ("gauge", "Sealed bytes that are not in the bucket yet."),
    "waiting_segments": ("gauge", "Sealed segments that are not in the bucket yet."),
    "deleted_objects": ("counter", "Objects deleted from the bucket because nothing needed them any more."),
    "fetched_bytes": ("counter", "Bytes fetched from the bucket for readers."),
    "fetched_segments": ("counter", "Segments fetched from the bucket for readers."),
    "cached_bytes": ("gauge", "Fetched bytes that are on the local disk."),
}
"""Kind and help by name."""


class TierService:
    """Uploads sealed segments while a server runs."""

    name: ClassVar[str] = "tier"

    def __init__(self, tier: StoreTier) -> None:
        self._tier = tier

    async def start(self) -> None:
        """Claim the prefix and begin. Raises TimestoneError, OSError."""
        await asyncio.to_thread(self._tier.start)

    async def stop(self) -> None:
        """Stop uploading; segments that are not in the bucket yet wait for the next start."""
        await asyncio.to_thread(self._tier.close)

    def describe(self) -> list[str]:
        """Return what a user wants to know at start."""
        limit = self._tier.config.upload_bytes_per_s
        pace = f", at most {format_bytes(limit)}/s" if limit else ""
        status = self._tier.status()
        what = f"waiting for it: {status.last_error}"
        if status.generation:
            what = f"generation {status.generation}"
        elif self._tier.is_replicated and status.last_error is None:
            what = "for the logs that this node leads"
        return [f"tier  {self._tier.url}, {what}{pace}"]

    def status(self) -> dict[str, Any]:
        """Return counters and gauges by name."""
        status, logs, fetched = self._tier.status(), self._tier.log_status(), self._tier.fetch_status()
        return {
            "running": int(status.state not in ("stopped", "waiting")),
            "uploaded_bytes": status.uploaded_bytes,
            "uploaded_segments": status.uploaded_segments,
            "errors": status.error_count,
            "stored_bytes": sum(log.stored_bytes for log in logs),
            "waiting_bytes": sum(log.waiting_bytes for log in logs),
            "waiting_segments": sum(log.waiting_segments for log in logs),
            "deleted_objects": status.deleted_objects,
            "fetched_bytes": fetched.fetched_bytes,
            "fetched_segments": fetched.fetched_segments,
            "cached_bytes": fetched.cached_bytes,
            "state": status.state,
            "last_error": status.last_error,
        }

    def metrics(self) -> list[Metric]:
        """Return the figures of `status` as metrics."""
        status = self.status()
        return [metric(name, kind, help_, status[name]) for name, (kind, help_) in _METRICS.items()]
