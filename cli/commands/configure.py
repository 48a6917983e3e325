"""`timestone configure`: show and change the settings of logs that exist.

Names and values are those of `[log]` in the configuration of `serve`, declared and read by the same code. The server
that runs on the store is asked to change them; without one, they are changed in the catalogue.
"""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from timestone.config import LogConfig, with_settings
from timestone.errors import StoreLocked
from timestone.format.names import log_folder
from timestone.upkeep.stored_settings import Configured, configure_logs, settings_of_logs
from timestone.view import view_store

from ..control.caller import Caller, NoServer, Refused
from ..errors import CommandError, UsageError
from ..group import Command
from ..input.log_names import known_partitions
from ..input.parameters import COUNT, DIRECTORY
from ..output.json_object import print_json
from ..output.text import print_text
from ..settings.assignments import LOG_SETTINGS, given_settings
from ..settings.schema import Setting, as_typed

_RETENTION = ("retention_ms", "retention_bytes")
_AT_OPEN = {"topic_count", "topic_bytes"}
"""Settings that an open log does not apply: see `Log.configure`."""

Log = tuple[str, int]


def _paragraph(setting: Setting) -> str:
    return textwrap.fill(
        f"  {setting.key:<22} {setting.describe()}", 78, subsequent_indent=" " * 25, break_on_hyphens=False
    )


EXAMPLES = """\
Examples:
  timestone configure data                what differs from the defaults
  timestone configure data mqtt           all settings of one log
  timestone configure data mqtt retention_ms=7d retention_bytes=10GiB
  timestone configure data mqtt compression=zstd --partition 3
  timestone configure data --json | jq '.logs[].settings.retention_ms'

A server that runs on the store applies a change at once, except for topic_count
and topic_bytes, which count from its next start on. Without a server, a change
takes effect at the next start. What the new retention does not keep is deleted
right then and cannot be restored. [log] in the configuration of `serve` is for
logs that are created; logs that exist are changed here.

Settings:
""" + "".join(f"{_paragraph(setting)}\n" for setting in LOG_SETTINGS.values())


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.argument("log", metavar="[LOG]", required=False, help="Only this log, with all settings.")
@click.argument("changes", metavar="[SETTING=VALUE]...", nargs=-1, help="Change these settings of the log.")
@click.option("--partition", metavar="N", type=COUNT, help="Only this partition of the log.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    directory: Path, log: str | None, changes: Sequence[str], partition: int | None, as_json: bool
) -> None:
    """Show the settings of the logs of a store, or change them for good."""
    if log is not None and "=" in log:
        raise UsageError(f"invalid log name {log!r}: expected DIR LOG SETTING=VALUE")
    if log is None and partition is not None:
        raise UsageError("--partition needs the name of a log")
    given = given_settings(changes)
    with closing(view_store(directory)) as view:
        logs = view.log_names(server=True)
        if log is not None:
            logs = [(log, number) for number in known_partitions(view, log, partition)]
    configs = settings_of_logs(directory)
    if given:
        _change(directory, logs, configs, given, as_json=as_json)
    elif as_json:
        print_json({"path": str(directory), "logs": [_json(one, configs.get(one)) for one in logs]})
    elif log is None:
        _print_differences(logs, configs)
    else:
        _print_settings(logs, configs)


def _change(
    directory: Path,
    logs: Sequence[Log],
    configs: Mapping[Log, LogConfig],
    changes: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    missing = [log_folder(*log) for log in logs if log not in configs]
    if missing:
        raise CommandError(
            f"the catalogue of {directory} has no settings of {', '.join(missing)}; start the server once, "
            "which adds them, and stop it"
        )
    is_live = False
    try:
        done = configure_logs(directory, logs, changes)
    except StoreLocked as error:
        done, is_live = _changed_by_owner(directory, logs, configs, changes, error), True
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json(
            {
                "path": str(directory),
                "is_live": is_live,
                "logs": [_json(log, one.after, _differences(one)) for log, one in done.items()],
            }
        )
    else:
        _print_changes(done, changes, is_live=is_live)


def _changed_by_owner(
    directory: Path,
    logs: Sequence[Log],
    configs: Mapping[Log, LogConfig],
    changes: Mapping[str, Any],
    locked: StoreLocked,
) -> dict[Log, Configured]:
    """Have the server that owns the store change the settings. Raises CommandError."""
    try:
        with Caller(directory) as server:
            found = server.call("configure", logs=[list(log) for log in logs], settings=dict(changes))
    except NoServer:
        raise CommandError(f"{locked}, which has no control socket; stop it first") from locked
    except Refused as error:
        raise (UsageError if error.code == "invalid_request" else CommandError)(str(error)) from None
    changed = {(one["log"], one["partition"]): one for one in found["logs"]}
    return {
        log: Configured(*(with_settings(configs[log], changed[log][side]) for side in ("before", "after")))
        for log in logs
    }


def _differences(done: Configured) -> dict[str, tuple[Any, Any]]:
    """Return old and new value of each setting that has changed."""
    pairs = {name: (getattr(done.before, name), getattr(done.after, name)) for name in LOG_SETTINGS}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _print_changes(done: Mapping[Log, Configured], changes: Mapping[str, Any], *, is_live: bool) -> None:
    differences = {log: _differences(one) for log, one in done.items()}
    for log, changed in differences.items():
        for name in changes:
            if name in changed:
                old, new = changed[name]
                print(f"{log_folder(*log)}: {name} {_text(name, old)} -> {_text(name, new)}")
            else:
                print(f"{log_folder(*log)}: {name} is already {_text(name, changes[name])}")
    names = {name for changed in differences.values() for name in changed}
    then = ", which deletes what retention does not keep" if names & set(_RETENTION) else ""
    if names - _AT_OPEN and is_live:
        print_text(f"in effect in the running server{then}")
    late = sorted(names & _AT_OPEN) if is_live else sorted(names)
    if late and is_live:
        print_text(f"{' and '.join(late)}: takes effect at the next start")
    elif late:
        print_text(f"takes effect at the next start{then}")


def _print_differences(logs: Sequence[Log], configs: Mapping[Log, LogConfig]) -> None:
    if not logs:
        print("there are no logs")
        return
    width = max(len(log_folder(*log)) for log in logs)
    for log in logs:
        print_text(f"{log_folder(*log):<{width}}  {_difference(configs.get(log))}")


def _difference(config: LogConfig | None) -> str:
    if config is None:
        return _unknown()
    set_names = [name for name, setting in LOG_SETTINGS.items() if getattr(config, name) != setting.default]
    return " ".join(f"{name}={_text(name, getattr(config, name))}" for name in set_names) or "defaults"


def _print_settings(logs: Sequence[Log], configs: Mapping[Log, LogConfig]) -> None:
    """Print a table for all partitions that have the same settings."""
    alike: dict[LogConfig | None, list[Log]] = {}
    for log in logs:
        alike.setdefault(configs.get(log), []).append(log)
    for number, (config, those) in enumerate(alike.items()):
        print(("\n" if number else "") + ", ".join(log_folder(*log) for log in those))
        if config is None:
            print_text(_unknown())
            continue
        rows = [("setting", "value", "default")]
        rows += [
            (name, _text(name, getattr(config, name)), _text(name, setting.default))
            for name, setting in LOG_SETTINGS.items()
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        for name, value, default in rows:
            print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {default}")


def _unknown() -> str:
    return "not in the catalogue; the next start of the server gives it the settings of its configuration"


def _json(
    log: Log, config: LogConfig | None, changed: Mapping[str, tuple[Any, Any]] | None = None
) -> dict[str, Any]:
    settings = config and {
        name: {"value": getattr(config, name), "default": setting.default}
        for name, setting in LOG_SETTINGS.items()
    }
    found: dict[str, Any] = {"log": log[0], "partition": log[1], "settings": settings}
    if changed is not None:
        found["changed"] = {name: {"old": old, "new": new} for name, (old, new) in changed.items()}
    return found


def _text(name: str, value: Any) -> str:
    """Return a value as one word that can be typed again, a time with its unit."""
    if name.endswith("_ms") and 0 < value < 1000:
        return f"{value}ms"
    return as_typed(value, name).replace(" ", "")
