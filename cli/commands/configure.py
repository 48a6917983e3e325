"""`timestone configure`: the settings of logs that exist, shown and changed.

Names and values are those of `[log]` in the configuration of `serve`, declared and read by the same code. Showing works
beside the process that owns the store; changing needs the store for itself.
"""

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from timestone.config import LogConfig
from timestone.errors import StoreLocked
from timestone.format.names import log_folder
from timestone.upkeep.stored_settings import Configured, configure_logs, settings_of_logs
from timestone.view import view_store

from ..errors import CommandError, UsageError
from ..input.log_names import known_partitions
from ..output.json_object import print_json
from ..parser import CommandParser, given_count, given_path
from ..settings.schema import Setting, as_typed, settings_of
from ..settings.sources import nearest
from ..settings.values import convert

EXAMPLES = """\
examples:
  timestone configure data                          each log, with what differs from the defaults
  timestone configure data mqtt                     all settings of one log, with their defaults
  timestone configure data mqtt retention_ms=7d retention_bytes=10GiB
  timestone configure data mqtt compression=zstd --partition 3
  timestone configure data --json | jq '.logs[] | {log, keep: .settings.retention_ms.value}'

Showing works while `timestone serve` runs. To change something, stop the server first: a change
counts from the next start on. What retention lets go then is deleted right after that start, and
there is no way back. [log] in the configuration of `serve` counts for logs that are created; logs
that exist are changed here.
"""
_SETTINGS = {setting.key: setting for setting in settings_of(LogConfig)}
_RETENTION = ("retention_ms", "retention_bytes")

Log = tuple[str, int]


def add_arguments(parser: CommandParser) -> None:
    """The options of `configure`."""
    parser.usage = "%(prog)s DIR [LOG [SETTING=VALUE ...]] [--partition N] [--json] [--debug]"
    parser.description = "Show the settings of the logs of a store, or change them for good."
    parser.epilog = f"{EXAMPLES}\nsettings:\n{_described()}"
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store")
    parser.add_argument(
        "words", metavar="LOG", nargs="*",
        help="only this log, with all settings; with SETTING=VALUE behind it, change these, and say what changed",
    )  # fmt: skip
    parser.scattered = "words"
    parser.add_argument(
        "--partition", metavar="N", type=given_count,
        help="only this partition of the log (default: all that there are)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Show settings, or change what was asked; returns the exit code."""
    name = arguments.words[0] if arguments.words else None
    if name is not None and "=" in name:
        raise UsageError(f"which log? {name!r} stands where the log's name goes: DIR LOG SETTING=VALUE")
    if name is None and arguments.partition is not None:
        raise UsageError("--partition is for one log; name it")
    changes = _given(arguments.words[1:])
    with closing(view_store(arguments.directory)) as view:
        logs = view.log_names()
        if name is not None:
            logs = [(name, partition) for partition in known_partitions(view, name, arguments.partition)]
    configs = settings_of_logs(arguments.directory)
    if changes:
        _change(arguments, logs, configs, changes)
    elif arguments.json:
        print_json({"logs": [_json(log, configs.get(log)) for log in logs]})
    elif name is None:
        _print_differences(logs, configs)
    else:
        _print_settings(logs, configs)
    return 0


def _given(words: Sequence[str]) -> dict[str, Any]:
    """The values of `name=value` by name, as the setting's type."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in _SETTINGS:
            raise UsageError(f"a log has no setting {name!r}{nearest(name, _SETTINGS)}")
        if not equals:
            raise UsageError(f"{name} lacks a value: {name}=VALUE")
        if name in given:
            raise UsageError(f"{name} is given twice")
        try:
            given[name] = convert(_SETTINGS[name], text)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None
    return given


def _change(
    arguments: argparse.Namespace,
    logs: Sequence[Log],
    configs: Mapping[Log, LogConfig],
    changes: Mapping[str, Any],
) -> None:
    missing = [log_folder(*log) for log in logs if log not in configs]
    if missing:
        raise CommandError(
            f"the catalogue of {arguments.directory} has no settings of {', '.join(missing)}; start the server once, "
            "which adds them, and stop it"
        )
    try:
        done = configure_logs(arguments.directory, logs, changes)
    except StoreLocked as error:
        raise CommandError(
            f"{error}; it has to be stopped first, then the change counts from its next start"
        ) from error
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    if arguments.json:
        print_json({"logs": [_json(log, one.after, _differences(one)) for log, one in done.items()]})
    else:
        _print_changes(done, changes)


def _differences(done: Configured) -> dict[str, tuple[Any, Any]]:
    """Old and new value of each setting that has another one now."""
    pairs = {name: (getattr(done.before, name), getattr(done.after, name)) for name in _SETTINGS}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _print_changes(done: Mapping[Log, Configured], changes: Mapping[str, Any]) -> None:
    differences = {log: _differences(one) for log, one in done.items()}
    for log, changed in differences.items():
        for name in changes:
            if name in changed:
                old, new = changed[name]
                print(f"{log_folder(*log)}: {name} {_text(name, old)} -> {_text(name, new)}")
            else:
                print(f"{log_folder(*log)}: {name} is {_text(name, changes[name])} already")
    names = {name for changed in differences.values() for name in changed}
    if names:
        then = "; what retention lets go is deleted then" if names & set(_RETENTION) else ""
        print(f"this counts from the next start of the server on{then}")


def _print_differences(logs: Sequence[Log], configs: Mapping[Log, LogConfig]) -> None:
    if not logs:
        print("there are no logs")
        return
    width = max(len(log_folder(*log)) for log in logs)
    for log in logs:
        print(f"{log_folder(*log):<{width}}  {_difference(configs.get(log))}")


def _difference(config: LogConfig | None) -> str:
    if config is None:
        return _unknown()
    set_names = [name for name, setting in _SETTINGS.items() if getattr(config, name) != setting.default]
    return " ".join(f"{name}={_text(name, getattr(config, name))}" for name in set_names) or "defaults"


def _print_settings(logs: Sequence[Log], configs: Mapping[Log, LogConfig]) -> None:
    """A table for all partitions that have the same settings."""
    alike: dict[LogConfig | None, list[Log]] = {}
    for log in logs:
        alike.setdefault(configs.get(log), []).append(log)
    for number, (config, those) in enumerate(alike.items()):
        print(("\n" if number else "") + ", ".join(log_folder(*log) for log in those))
        if config is None:
            print(_unknown())
            continue
        rows = [("setting", "value", "default")]
        rows += [
            (name, _text(name, getattr(config, name)), _text(name, setting.default))
            for name, setting in _SETTINGS.items()
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        for name, value, default in rows:
            print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {default}")


def _unknown() -> str:
    return "not in the catalogue; the next start of the server gives it those of its configuration"


def _json(
    log: Log, config: LogConfig | None, changed: Mapping[str, tuple[Any, Any]] | None = None
) -> dict[str, Any]:
    settings = config and {
        name: {"value": getattr(config, name), "default": setting.default}
        for name, setting in _SETTINGS.items()
    }
    found: dict[str, Any] = {"log": log[0], "partition": log[1], "settings": settings}
    if changed is not None:
        found["changed"] = {name: {"old": old, "new": new} for name, (old, new) in changed.items()}
    return found


def _text(name: str, value: Any) -> str:
    """A value as one word, which can be typed again. A time has its unit: a `7` that was meant as days is seen."""
    if name.endswith("_ms") and 0 < value < 1000:
        return f"{value}ms"
    return as_typed(value, name).replace(" ", "")


def _described() -> str:
    return "\n".join(_paragraph(setting) for setting in _SETTINGS.values())


def _paragraph(setting: Setting) -> str:
    indent = " " * 25
    return textwrap.fill(
        f"  {setting.key:<22} {setting.describe()}", 98, subsequent_indent=indent, break_on_hyphens=False
    )
