"""Pages of the site that are made from the code: every command with its help, and every setting of the server."""

import re
from collections.abc import Iterator

import click

from timestone_cli.group import EXPLAIN_ALL
from timestone_cli.main import timestone
from timestone_cli.server.fronts import installed_fronts
from timestone_cli.settings.schema import Setting
from timestone_cli.settings.serve import catalogue

_COLUMNS = 80


def commands_page() -> str:
    """Return each command with what `--help-all` prints, as Markdown."""
    parts = [
        "# All commands\n\nThe text of `--help-all` of each command. [Commands](cli.md) explains them.\n"
    ]
    # The settings of each command, as in its own run: a command keeps the help option that it made first.
    settings = timestone.context_settings
    with click.Context(timestone, info_name="timestone", terminal_width=_COLUMNS, **settings) as ctx:
        parts += _helps(ctx)
    return "\n".join(parts)


def settings_page() -> str:
    """Return a table of the settings under each heading, as Markdown."""
    parts = [
        "# All settings\n\nOf `timestone serve`: as an option, as a key of the TOML file, as a variable of the"
        " environment. [Commands](cli.md) says which of them wins, and how sizes and durations are written.\n"
    ]
    for heading, settings in catalogue(installed_fronts()).items():
        parts.append(f"## {heading}\n\n| option | file | environment | meaning |\n|---|---|---|---|")
        parts += [_row(setting) for setting in settings]
        parts.append("")
    return "\n".join(parts)


def _helps(ctx: click.Context) -> Iterator[str]:
    """Yield the part of a command, and those of the commands below it."""
    command, name = ctx.command, ctx.command_path
    ctx.meta[EXPLAIN_ALL] = True
    yield f"## {name}\n\n```text\n{command.get_help(ctx).rstrip()}\n```\n"
    if not isinstance(command, click.Group):
        return
    for inner in command.list_commands(ctx):
        found = command.get_command(ctx, inner)
        assert found is not None, inner
        with click.Context(
            found, info_name=inner, parent=ctx, terminal_width=_COLUMNS, **found.context_settings
        ) as below:
            yield from _helps(below)


def _row(setting: Setting) -> str:
    options = ", ".join(f"`{option}`" for option in (*setting.aliases, setting.option))
    meaning = re.sub(r"([|<>*_\\])", r"\\\1", " ".join(setting.describe().split()))
    return f"| {options} | `{setting.key}` | `{setting.variable}` | {meaning} |"
