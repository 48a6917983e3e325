"""Settings that are given as arguments: NAME=VALUE."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from .schema import Setting
from .sources import nearest
from .values import convert


def given_settings(words: Sequence[str], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the values of `name=value` by name, as the type of the setting. Raises UsageError."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in settings:
            raise UsageError(f"unknown setting {name!r}{nearest(name, settings)}")
        if not equals:
            raise UsageError(f"missing value of {name}: expected {name}=VALUE")
        if name in given:
            raise UsageError(f"{name} is given twice")
        try:
            given[name] = convert(settings[name], text)
        except ValueError as error:
            raise UsageError(f"invalid {name}: {error}") from None
    return given
