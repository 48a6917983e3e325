"""Errors of the pipeline: one tree, with a new leaf only where a caller would decide differently. Each message is one
line, complete without a traceback: what failed, numbers, next step."""


class PipelineError(Exception):
    """Base class of all errors of this package."""


class InvalidConfig(PipelineError, ValueError):
    """Contradicting settings. Names the key as in the file."""


class Busy(PipelineError):
    """Another process works on these tables."""


class Conflict(Busy):
    """Another process has committed what this one was about to change. Nothing was changed; it can be done again."""


class TableFailed(PipelineError):
    """A Delta table cannot be read or written. Nothing was changed."""


class OldTables(PipelineError):
    """The folder has tables of the first version, with a ledger."""


class DataFileFailed(PipelineError):
    """A file of a table is damaged or missing, or cannot be written. Nothing was changed."""


class TablesBehind(PipelineError):
    """Log, checkpoint and tables do not fit together; continuing would omit records from the tables or mix those of two
    logs."""


class QueryFailed(PipelineError):
    """A query of Spark failed. The message is the innermost reason in Spark's error."""
