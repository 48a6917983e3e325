"""Settings of a log that are given as arguments: NAME=VALUE."""

from collections.abc import Sequence
from typing import Any

from timestone.config import LogConfig

from ..errors import UsageError
from .schema import settings_of
from .sources import nearest
from .values import convert

LOG_SETTINGS = {setting.key: setting for setting in settings_of(LogConfig)}


def given_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of `name=value` by name, as the type of the setting. Raises UsageError."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in LOG_SETTINGS:
            raise UsageError(f"unknown setting {name!r}{nearest(name, LOG_SETTINGS)}")
        if not equals:
            raise UsageError(f"missing value of {name}: expected {name}=VALUE")
        if name in given:
            raise UsageError(f"{name} is given twice")
        try:
            given[name] = convert(LOG_SETTINGS[name], text)
        except ValueError as error:
            raise UsageError(f"invalid {name}: {error}") from None
    return given
