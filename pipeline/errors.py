"""Errors of the pipeline: one tree, with a new leaf only where a caller would decide differently. Each message is one
line, complete without a traceback: what failed, numbers, next step."""


class PipelineError(Exception):
    """Base class of all errors of this package."""


class InvalidConfig(PipelineError, ValueError):
    """Contradicting settings. Names the key as in the file."""


class Busy(PipelineError):
    """Another process holds the lock on these tables."""


class DamagedLedger(PipelineError):
    """The list of commits cannot be read, or has a newer format. Nothing was changed."""


class DataFileFailed(PipelineError):
    """A file of a table is damaged or missing, or cannot be written. Nothing was changed."""


class TablesBehind(PipelineError):
    """Log, checkpoint and tables do not fit together; continuing would omit records from the tables or mix those of two
    logs."""


class QueryFailed(PipelineError):
    """A query of Spark failed. The message is the innermost reason in Spark's error."""
