"""Import of own modules that need an optional library."""

import importlib
from types import ModuleType

_OURS = ("timestone", "timestone_access", "mqtt_front", "flight_front")


class MissingExtra(ValueError):
    """A setting needs a library that is not installed. The message states how to install it."""


def load(module: str, *, extra: str, what: str, in_package: bool = True) -> ModuleType:
    """Import `module`, which serves `what` and needs the libraries of the extra `extra`. in_package: whether the Debian
    package has them. Raises MissingExtra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in _OURS:
            raise
        packaged = "" if in_package else "; for a Debian package with it, see EXTRAS in docs/install.md"
        raise MissingExtra(
            f"{what} needs the library {error.name!r}: pip install '.[{extra}]' in a clone{packaged}"
        ) from None
