"""The telemetry pipeline that runs on Spark: from the records of a log to tables.

    records -> clean -> windows -> a table

Each step is a function from DataFrame to DataFrame, for batch and stream alike; `job` puts them together and writes.
"""

from .clean import MESSAGE_SCHEMA, good, parse, rejected
from .job import Counts, write_minute_averages
from .windows import minute_averages

__all__ = [
    "MESSAGE_SCHEMA",
    "Counts",
    "good",
    "minute_averages",
    "parse",
    "rejected",
    "write_minute_averages",
]
