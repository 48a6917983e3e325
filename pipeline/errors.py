"""Every error of the pipeline: one tree, a new leaf only where a caller would decide differently.

Each message is one line, complete without a traceback: what, which numbers, what to do.
"""


class PipelineError(Exception):
    """The base of all errors of this package."""


class InvalidConfig(PipelineError, ValueError):
    """Settings that contradict each other. Names the key as the file has it."""


class Busy(PipelineError):
    """Another process does this to the same tables at this moment."""


class DamagedLedger(PipelineError):
    """The list of commits cannot be read, or is of a newer format. Nothing was changed."""


class DataFileFailed(PipelineError):
    """A file of a table is damaged or missing, or cannot be written. Nothing was changed."""


class TablesBehind(PipelineError):
    """The log, the checkpoint and the tables do not fit together; going on would leave records out of the tables or
    mix those of two logs."""


class QueryFailed(PipelineError):
    """Spark gave up. The message is the innermost reason that Spark's error names."""
