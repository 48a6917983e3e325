"""How a class of settings declares its fields: default, help and range, which are checked when a value is made.

For frozen dataclasses of every package: what a setting means and may be stands once, at the setting, for the check
here, for the command line and for the reference page."""

from dataclasses import field, fields
from typing import Any

COUNTED_MOST = 2**63 - 1
"""The most that a setting may be that has no bound of its own: what is compiled counts with 64 bits."""
_KINDS = {int: "a whole number", bool: "True or False"}


def setting(
    default: Any,
    help: str,
    *,
    low: int | None = None,
    high: int | None = None,
    heading: str = "",
    metavar: str = "",
) -> Any:
    """A field with a default; `low` and `high` are the least and the most that it may be.

    heading: of this setting and those after it in `--help`. metavar: what stands for the value there.
    """
    about = {"help": help, "low": low, "high": high, "heading": heading, "metavar": metavar}
    return field(default=default, metadata=about)


class Declared:
    """The base of a class of settings. One that has a `__post_init__` of its own calls this one from it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Raises TypeError for a value that is not of its setting's kind, ValueError for one out of its range."""
        for one in fields(self):  # type: ignore[arg-type]
            value, low, high = getattr(self, one.name), one.metadata.get("low"), one.metadata.get("high")
            kind = type(one.default)
            if kind in _KINDS and type(value) is not kind:
                raise TypeError(f"{one.name} is {value!r}; it has to be {_KINDS[kind]}")
            if kind is int and value > COUNTED_MOST:
                raise ValueError(f"{one.name} is {value}, which is larger than any machine counts")
            if (low is not None and value < low) or (high is not None and value > high):
                bounds = f"from {low}" + (f" to {high}" if high is not None else "")
                raise ValueError(f"{one.name} is {value}; it goes {bounds}")
