"""Are the Python packages there that Spark and the source need, here and at the workers? Imports none of them."""

import importlib.util
import subprocess
import sys

from pyspark_timestone.errors import MissingRequirement

PROBE_TIMEOUT_S = 60
"""A cold Python answers within a second; this only bounds a broken one."""

_MISSING = (
    "import importlib.util, sys; print('%d.%d' % sys.version_info[:2],"
    " *[one for one in sys.argv[1:] if importlib.util.find_spec(one) is None])"
)
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def require(*modules: str) -> None:
    """Raise MissingRequirement for the first of `modules` that this Python does not find."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingRequirement(
                f"{sys.executable} has no module {module!r}, which Spark needs: pip install 'timestone[spark]'"
            )


def require_in(python: str, *modules: str) -> None:
    """The same for the Python of Spark's workers, which PYSPARK_PYTHON names: a command, or a path. Its version has to
    be this one's up to the minor number: functions go there as they are compiled here."""
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
            "pip install 'timestone[spark]' into that Python, or unset it"
        )
