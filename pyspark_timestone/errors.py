"""Errors of the Spark source: one tree, with a new leaf only where a caller would decide differently.

Spark passes an error of a worker to the user as text inside its own exception, so each message is complete in one
line: what failed, which numbers, what to do."""


class SparkSourceError(Exception):
    """Base class of all errors of this package; never raised itself."""


class MissingRequirement(SparkSourceError):
    """Java, PySpark or a Python package is missing. The message names it and how to install it."""


class JavaFailed(SparkSourceError):
    """A Java was started, but Spark did not start in it. The output of Java is on standard error."""


class InvalidOption(SparkSourceError, ValueError):
    """An option of the source or the sink is unknown, contradicts another one, or has an invalid value."""


class InvalidOffsets(SparkSourceError, ValueError):
    """Text that is not valid offset JSON."""


class SchemaMismatch(SparkSourceError, ValueError):
    """A schema given with `.schema(...)` has columns that the source lacks, or a frame has columns that the sink
    does not take."""


class GroupInUse(SparkSourceError):
    """Another query reads the store under the same group. Stop it or use another name."""


class SideFilesBusy(SparkSourceError):
    """Another process writes the side files of the store. Only one may."""


class InvalidRow(SparkSourceError, ValueError):
    """A row that cannot be a record: for example with a wildcard in its topic, or with headers that are too large."""


class BadPayload(SparkSourceError, ValueError):
    """A payload that does not match the format and schema of the options."""


class SinkFailed(SparkSourceError):
    """Spark does not provide what the sink needs to append a batch exactly once."""


class DataLoss(SparkSourceError):
    """Requested records are missing from the store, or are not the ones read before.

    With the option `failOnDataLoss=false` the source logs a warning and continues with the existing records."""
