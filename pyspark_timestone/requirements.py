"""Are the Python packages there that Spark and the source need? Imports none of them."""

import importlib.util
import sys

from pyspark_timestone.errors import MissingRequirement


def require(*modules: str) -> None:
    """Raise MissingRequirement for the first of `modules` that this Python does not find."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingRequirement(
                f"{sys.executable} has no module {module!r}, which Spark needs: pip install 'timestone[spark]'"
            )
