"""Tables of a pipeline for the console: its state and its dead letters as plain values."""

import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..settings.pipeline import read_pipeline_config

_STATUS_S = 5.0
"""How old a status may be: it reads the reasons of all dead letters."""


class PipelineTables:
    """Tables of one pipeline. Usable from any thread; takes no lock of the pipeline."""

    def __init__(self, file: Path) -> None:
        """Read the settings. Raises UsageError."""
        # Not at the top: this needs Spark's packages, and most consoles have no pipeline.
        from timestone_pipeline import open_tables  # noqa: PLC0415

        self._config = read_pipeline_config(file)
        self._tables = open_tables(self._config)
        self._status: dict[str, Any] = {}
        self._status_s = -_STATUS_S
        self._lock = threading.Lock()

    def pipeline(self) -> dict[str, Any]:
        """Return the state of the pipeline. Raises TableFailed, DataFileFailed, OSError."""
        from timestone_pipeline import status  # noqa: PLC0415

        with self._lock:
            if time.monotonic() - self._status_s > _STATUS_S:
                found = status(self._config, self._tables)
                self._status = {
                    "path": str(self._config.tables.path),
                    "tables": [asdict(one) for one in found.tables],
                    "logs": [asdict(one) for one in found.logs],
                    "reasons": found.problems,
                    "late": found.late,
                    "batches": found.batches,
                    "last_commit_us": found.last_commit_us,
                    "newest_us": found.newest_us,
                    "closed_us": {str(minutes): end_us for minutes, end_us in found.closed_us.items()},
                    "is_exact": found.exact,
                    "is_reprocess_interrupted": found.reprocess_interrupted,
                    "history": self._history(),
                }
                self._status_s = time.monotonic()
            return self._status

    def _history(self) -> list[dict[str, Any]]:
        """Return the last commits of bronze, the newest first."""
        from timestone_pipeline.delta.snapshot import ROWS, TOOK_S  # noqa: PLC0415

        bronze = self._tables.state().of(self._tables.tables.bronze)
        if not bronze.exists:
            return []
        return [
            {
                "number": one.get("version", 0),
                "time_us": int(one.get("timestamp", 0)) * 1000,
                "kind": str(one.get("operation", "")).lower(),
                "rows": None if ROWS not in one else int(one[ROWS]),
                "took_s": None if TOOK_S not in one else float(one[TOOK_S]),
            }
            for one in bronze.delta.history(50)
        ]

    def dead_letters(self, after: str, limit: int, reason: str | None) -> dict[str, Any]:
        """Return a page of dead letters, the newest first. Raises ValueError for a cursor of tables that were compacted
        since, TableFailed, DataFileFailed, OSError."""
        from timestone_pipeline.delta.dead_letters import dead_letters  # noqa: PLC0415

        letters, following = dead_letters(self._tables, after, limit, reason)
        return {
            "letters": [asdict(one) for one in letters],
            "next": following,
            "reasons": self.pipeline()["reasons"],
            "fields": dict(self._config.message.fields),
        }
