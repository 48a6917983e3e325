"""Requirements of Spark and the source, here and in the workers: Python packages, and the version of Spark."""

import importlib.util
import logging
import subprocess
import sys

from pyspark_timestone.errors import MissingRequirement

OLDEST_SPARK, NEWEST_SPARK = (4, 0), (4, 3)
"""Versions that the tests run with; `pyproject.toml` has the same range."""
ADMISSION_CONTROL_SPARK = (4, 2)
"""First version that passes the start of a batch to a Python source, and limits and AvailableNow."""
ARROW_STREAM_SINK_SPARK = (4, 1)
"""First version that passes the rows of a stream to a Python sink as Arrow batches."""

PROBE_TIMEOUT_S = 60
"""A cold Python answers within a second; this only bounds a broken one."""

_MISSING = (
    "import importlib.util, sys; print('%d.%d' % sys.version_info[:2],"
    " *[one for one in sys.argv[1:] if importlib.util.find_spec(one) is None])"
)
_log = logging.getLogger(__name__)

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def require(*modules: str) -> None:
    """Raise MissingRequirement for the first of `modules` that this Python lacks."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingRequirement(
                f"{sys.executable} has no module {module!r}, which Spark needs: pip install '.[spark]' in a clone"
            )


def spark_version() -> tuple[int, int]:
    """Return major and minor version of the PySpark that this Python imports."""
    from pyspark.version import __version__  # noqa: PLC0415 - importable without PySpark

    major, minor = __version__.split(".")[:2]
    return int(major), int(minor)


def require_spark_version() -> None:
    """Raise MissingRequirement for a Spark older than the first with the interface that the source implements."""
    version = spark_version()
    if version < OLDEST_SPARK:
        raise MissingRequirement(
            f"unsupported Spark {_dotted(version)}: expected {_dotted(OLDEST_SPARK)} to {_dotted(NEWEST_SPARK)}"
        )


def warn_of_untested_spark() -> None:
    """Log a warning for a Spark newer than those that the source was tested with."""
    version = spark_version()
    if version > NEWEST_SPARK:
        _log.warning(
            "Spark %s is newer than the versions that this Timestone was tested with: %s to %s",
            *(_dotted(one) for one in (version, OLDEST_SPARK, NEWEST_SPARK)),
        )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def require_in(python: str, *modules: str) -> None:
    """Check the Python of Spark's workers, a command or path in PYSPARK_PYTHON. Its version must equal this one's up
    to the minor number, because compiled functions are sent to it."""
    try:
        answer = subprocess.run(
            [python, "-c", _MISSING, *modules],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        raise MissingRequirement(
            f"PYSPARK_PYTHON is {python}, which does not start: unset it, or name a Python"
        ) from None
    version, *missing = answer.stdout.split() or ["unknown"]
    if version != _VERSION:
        raise MissingRequirement(
            f"PYSPARK_PYTHON is {python}, whose version is {version}, and this Python is {_VERSION}: "
            "name one of the same version, or unset it"
        )
    if missing:
        raise MissingRequirement(
            f"PYSPARK_PYTHON is {python}, which has no module {missing[0]!r}: "
            "pip install '.[spark]' in a clone, into that Python, or unset it"
        )
