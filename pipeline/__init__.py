"""The telemetry pipeline that runs on Spark: from the records of a log to tables that are exact and can be replayed.

    log -> bronze -> clean -> windows, last
                  -> dead_letters, duplicates

`PipelineConfig` has the settings, `run` does the work. The steps are functions from DataFrame to DataFrame, for
programs that want just these: `parse`, `good`, `rejected`, `averages`, `newest`.
"""

from pyspark_timestone.errors import SparkSourceError

from .config import (
    DeduplicateConfig,
    MessageConfig,
    PipelineConfig,
    SourceConfig,
    SparkConfig,
    TablesConfig,
    WindowsConfig,
)
from .delta.maintenance import compact
from .delta.query import export, query
from .delta.warehouse import MAINTENANCE, Commit, Warehouse, open_tables
from .errors import PipelineError
from .jobs.backfill import Span, backfill
from .jobs.pending import is_caught_up
from .jobs.reprocess import reprocess
from .status import PipelineStatus, status
from .steps.clean import good, parse, rejected
from .steps.newest import newest
from .steps.windows import averages
from .stream import run, session_of

__all__ = [
    "MAINTENANCE",
    "Commit",
    "DeduplicateConfig",
    "MessageConfig",
    "PipelineConfig",
    "PipelineError",
    "PipelineStatus",
    "SourceConfig",
    "Span",
    "SparkConfig",
    "SparkSourceError",
    "TablesConfig",
    "Warehouse",
    "WindowsConfig",
    "averages",
    "backfill",
    "compact",
    "export",
    "good",
    "is_caught_up",
    "newest",
    "open_tables",
    "parse",
    "query",
    "rejected",
    "reprocess",
    "run",
    "session_of",
    "status",
]
