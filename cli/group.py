"""The classes of our commands: those of click, with what all commands share.

Shared are `--debug`, options under headings, examples that keep their layout, and commands that are imported when they
are used. Not here: any particular command.
"""

import importlib
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .errors import EXIT_FAILED
from .process.interrupts import killable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_HEADING = "Options"
EXPLAIN_ALL = f"{__name__}.explain_all"
"""Key of `Context.meta`: whether help explains the options that are not common, too."""


class Invocation:
    """State of a command for `main`, which reports its errors. Not a dataclass, whose module is slow to import."""

    def __init__(self) -> None:
        self.program = "timestone"
        """The command as the user typed it: "timestone bench mqtt"."""
        self.exit_failed = EXIT_FAILED
        self.debug = False


class Option(click.Option):
    """An option that `--help` shows under a heading of its own."""

    def __init__(
        self, *declarations: Any, heading: str = _HEADING, is_common: bool = True, **attributes: Any
    ) -> None:
        super().__init__(*declarations, **attributes)
        self.heading = heading
        self.is_common = is_common
        """Whether `--help` explains it; `--help-all` explains all options."""


class Command(click.Command):
    """A command; its function returns the exit code, None for 0.

    `epilog` is printed as it is. `exit_failed` is the exit code of errors that have none of their own.
    """

    def __init__(self, *names: Any, exit_failed: int = EXIT_FAILED, **attributes: Any) -> None:
        attributes.setdefault(
            "context_settings", {"show_default": True, "help_option_names": ["-h", "--help"]}
        )
        super().__init__(*names, **attributes)
        self.exit_failed = exit_failed
        self.params.append(_debug_option())

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; Ctrl-C ends the process, because nothing has begun."""
        with killable():
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an error from here on is one of this command."""
        invocation = ctx.ensure_object(Invocation)
        invocation.program, invocation.exit_failed = ctx.command_path, self.exit_failed
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under its heading; of those that are not common, only the names."""
        explained: dict[str, list[tuple[str, str]]] = {}
        named: dict[str, list[str]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or not isinstance(parameter, click.Option):
                continue
            heading = getattr(parameter, "heading", _HEADING)
            if ctx.meta.get(EXPLAIN_ALL) or getattr(parameter, "is_common", True):
                explained.setdefault(heading, []).append(record)
            else:
                named.setdefault(heading, []).append(parameter.opts[-1])
        for heading, rows in explained.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
        for heading, names in named.items():
            with formatter.section(f"{heading} (see --help-all)"):
                indent = " " * formatter.current_indent
                formatter.write(
                    textwrap.fill(
                        " ".join(names),
                        formatter.width,
                        initial_indent=indent,
                        subsequent_indent=indent,
                        break_on_hyphens=False,
                    )
                    + "\n"
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog as it is."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(self.epilog)


def help_all_option() -> click.Option:
    """Return `--help-all`, for a command with options that are not common."""
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_explain_all,
        help="Show this message with all options explained and exit.",
    )


def _explain_all(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[EXPLAIN_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


class Group(Command, click.Group):
    """A group of commands, in the order of their declaration."""

    command_class = Command

    def __init__(self, *names: Any, **attributes: Any) -> None:
        super().__init__(*names, no_args_is_help=False, **attributes)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, because they are what the user looks for."""
        self.format_commands(ctx, formatter)
        Command.format_options(self, ctx, formatter)


class Entry(NamedTuple):
    """A command in the table of its group: the module that defines `command`, and its line in `--help`."""

    module: str
    summary: str


class LazyGroup(Group):
    """A group whose commands are imported when they are used.

    `table` has the entries by heading and name. A module is named in full, or relative to `package`.
    """

    def __init__(
        self,
        *names: Any,
        table: Mapping[str, Mapping[str, Entry]],
        package: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*names, **attributes)
        self.table = table
        self._package = package

    @property
    def entries(self) -> dict[str, Entry]:
        """Return the entries of all headings by name."""
        return {name: entry for entries in self.table.values() for name, entry in entries.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none of that name."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        with killable():
            command = importlib.import_module(entry.module, self._package).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with. Raises NoSuchCommand with the nearest names."""
        if not args[0].startswith("-") and args[0] not in self.entries and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.entries, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing a command."""
        longest = max(map(len, self.entries))
        for heading, entries in self.table.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{longest}}", entry.summary) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the commands and options that begin so, without importing a command."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell asks for this

        names = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=_note_debug,
        help="Show the traceback of an error.",
    )


def _note_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).debug = True
