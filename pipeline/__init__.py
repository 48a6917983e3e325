"""The telemetry pipeline that runs on Spark: from the records of a log to tables that are exact and can be replayed.

    log -> bronze -> clean -> windows, last
                  -> dead_letters, duplicates

`PipelineConfig` has the settings, `run` does the work. The steps are functions from DataFrame to DataFrame, for
programs that want just these: `parse`, `good`, `rejected`, `averages`, `newest`.
"""

from pyspark_timestone.errors import SparkSourceError

from .backfill import Span, backfill
from .clean import good, parse, rejected
from .config import (
    DeduplicateConfig,
    MessageConfig,
    PipelineConfig,
    SourceConfig,
    SparkConfig,
    TablesConfig,
    WindowsConfig,
)
from .errors import PipelineError
from .maintenance import compact
from .newest import newest
from .pending import is_caught_up
from .query import export, query
from .reprocess import reprocess
from .status import PipelineStatus, status
from .stream import run, session_of
from .warehouse import MAINTENANCE, Commit, Warehouse, open_tables
from .windows import averages

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
