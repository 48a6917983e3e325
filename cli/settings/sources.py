"""Sources of the settings of `serve`: option, environment, file, default, in that order. Every setting can be given in
all three places; an unknown name is reported with the nearest known one."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .schema import Setting
from .values import convert

PREFIX = "TIMESTONE_"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Given settings by key, and warnings about possible misspellings."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    """Where each of `values` was given, in the spelling of the user: `--ack`, `TIMESTONE_ACK`, `ack in serve.toml`."""
    remarks: tuple[str, ...] = ()


def read_configuration(
    settings: Sequence[Setting],
    *,
    options: Mapping[str, str],
    environment: Mapping[str, str],
    file: Path | None,
) -> Configuration:
    """Return what was given. Raises UsageError for an unknown key, a wrong value, or a file that cannot be read.

    `options` holds the texts of the options that were used, by setting key.
    """
    by_key = {setting.key: setting for setting in settings}
    given: dict[str, tuple[str, Any]] = {}
    if file is not None:
        for key, value in _flatten(_load(file), by_key):
            if key not in by_key:
                raise UsageError(f"{file}: unknown key {key!r}{nearest(key, by_key)}")
            given[key] = (f"{key} in {file}", value)
    variables = {setting.variable: setting for setting in settings}
    for name, text in environment.items():
        if name in variables:
            given[variables[name].key] = (name, text)
    for key, text in options.items():
        given[key] = ((*by_key[key].aliases, by_key[key].option)[0], text)
    values = {key: _converted(by_key[key], source, value) for key, (source, value) in given.items()}
    sources = {key: source for key, (source, _) in given.items()}
    return Configuration(values, sources, tuple(_misspelled(environment, variables)))


def _load(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8: {error.reason} at byte {error.start}") from None


def _flatten(
    table: Mapping[str, Any], known: Mapping[str, Setting], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by dotted key. A table that is the value of a setting stays whole."""
    for name, value in table.items():
        key = prefix + name
        is_section = any(other.startswith(f"{key}.") for other in known)
        if isinstance(value, dict) and key not in known and (value or is_section):
            yield from _flatten(value, known, f"{key}.")
        else:
            yield key, value


def _converted(setting: Setting, source: str, value: Any) -> Any:
    try:
        return convert(setting, value)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None


def nearest(key: str, known: Mapping[str, Setting]) -> str:
    """Return the end of an error message that names the nearest known key; empty when none is near."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if not near:  # the right name in the wrong table?
        last = key.rpartition(".")[2]
        near = [other for other in known if other.rpartition(".")[2] == last][:1]
    return f"; did you mean {near[0]!r}?" if near else ""


def _misspelled(environment: Mapping[str, str], variables: Mapping[str, Setting]) -> Iterator[str]:
    # Not an error, unlike in the file: other software sets variables, too. Kubernetes does for every service: one named
    # "timestone" has TIMESTONE_PORT and TIMESTONE_SERVICE_HOST.
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in variables:
            near = difflib.get_close_matches(name, variables, n=1, cutoff=0.8)
            if near:
                yield f"unknown setting {name} in the environment; did you mean {near[0]}?"
