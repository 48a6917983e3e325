"""Every error of the Spark source: one tree, a new leaf only where a caller would decide differently.

Spark carries an error raised in a worker to the user as text, inside an exception of its own. So each message has
to be complete in one line: what, which numbers, what to do.
"""


class SparkSourceError(Exception):
    """The base of all errors of this package; never raised itself."""


class MissingRequirement(SparkSourceError):
    """Java, PySpark or a Python package is not there. The message says which, and how to get it."""


class JavaFailed(SparkSourceError):
    """A Java was found and started, but Spark did not come up in it. What Java said is on standard error."""


class InvalidOption(SparkSourceError, ValueError):
    """An option of the source or the sink that is unknown, contradicts another one, or has an impossible value."""


class InvalidOffsets(SparkSourceError, ValueError):
    """Text that should be offset JSON and is not."""


class SchemaMismatch(SparkSourceError, ValueError):
    """A schema given with `.schema(...)` that asks for columns the source does not have, or a frame with columns that
    the sink does not take."""


class GroupInUse(SparkSourceError):
    """Another query reads the store under the same group. Stop it, or choose another name."""


class SideFilesBusy(SparkSourceError):
    """Another process writes the side files of the store. One at a time."""


class InvalidRow(SparkSourceError, ValueError):
    """A row that cannot be a record: a topic with a wildcard, headers that are too large."""


class BadPayload(SparkSourceError, ValueError):
    """A payload that is not of the format and schema that the options say."""


class SinkFailed(SparkSourceError):
    """Spark does not give the sink what it needs to append a batch exactly once."""


class DataLoss(SparkSourceError):
    """Records that were asked for are not in the store any more, or are not the ones that were read before.

    With the option `failOnDataLoss=false` the source warns and goes on with what is there.
    """
