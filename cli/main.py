"""Entry of the `timestone` command: runs what was asked for and turns errors into one line and an exit code.

Here is the table of commands. `timestone --help` answers from it; only the command that runs is imported, and this
module imports nothing heavier than click.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from .errors import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_USAGE, CommandError
from .group import Entry, Invocation, LazyGroup
from .process.standard_streams import give_up_broken_streams, open_standard_streams

COMMANDS = {
    "Server": {
        "serve": Entry(".commands.serve", "Own a store and let clients in over MQTT."),
        "wait": Entry(".commands.wait", "Wait until a server is ready."),
        "clients": Entry(".live.clients", "List the connected clients of a running server."),
        "top": Entry(".live.top", "Show what clients of a running server do, and refresh it."),
        "console": Entry(".live.console", "Show a store and its server in a browser."),
        "metrics": Entry(".live.metrics", "Show what a server did over time, by its own samples."),
        "export": Entry(".live.export", "Send what a server recorded to a collector of OpenTelemetry."),
        "kick": Entry(".live.kick", "Disconnect a client of a running server."),
        "control": Entry(".live.control", "Have a running server watch a client, roll a log, and more."),
        "cluster": Entry(".live.cluster", "Make a cluster of nodes that hold the same logs."),
        "passwd": Entry(".mqtt.passwd", "Set the password of a user of the MQTT server."),
    },
    "Records": {
        "append": Entry(".commands.append", "Append one record for each line of input."),
        "pub": Entry(".mqtt.pub", "Publish to an MQTT server."),
        "sub": Entry(".mqtt.sub", "Print what an MQTT server delivers."),
        "read": Entry(".commands.read", "Print records from an offset or a time, or as they arrive."),
    },
    "Stores": {
        "inspect": Entry(".commands.inspect", "Show logs and segments and whether they are sound."),
        "configure": Entry(".commands.configure", "Show or change the settings of logs, such as retention."),
        "readers": Entry(".commands.readers", "Show, release or forget named readers."),
        "backup": Entry(".commands.backup", "Copy a store, also while a server writes it."),
        "restore": Entry(".commands.restore", "Make a store of what a bucket has, on a new machine."),
        "tier": Entry(".commands.tier", "Look after the history of a store in object storage."),
        "salvage": Entry(".commands.salvage", "Copy what can be verified out of a damaged store."),
        "delete": Entry(".commands.delete", "Delete a log with all its records."),
    },
    "Tables": {
        "parquet": Entry(".commands.parquet", "Keep a Parquet file of each sealed segment."),
        "pipeline": Entry(".commands.pipeline", "Turn the records of a log into exact tables, with Spark."),
    },
    "Measuring": {
        "bench": Entry(".commands.bench", "Measure this machine with and without Timestone."),
    },
}
"""The commands by heading and name."""

EXAMPLES = """\
Examples:
  timestone serve                              store in ./timestone-data, MQTT
                                               on 127.0.0.1:1883
  timestone inspect timestone-data             what is in it, and is it sound?
  timestone read timestone-data mqtt --follow  records as they arrive
  timestone COMMAND --help                     options and examples of a command
"""
COMPLETION_VARIABLE = "_TIMESTONE_COMPLETE"


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        version = importlib.import_module(".process.version", __package__)
        click.echo("\n".join(version.version_lines()))
        ctx.exit()


timestone = LazyGroup(
    "timestone",
    table=COMMANDS,
    package=__package__,
    help="A commit log for Python programs, MQTT devices and Spark jobs.",
    epilog=EXAMPLES,
    subcommand_metavar="COMMAND [ARGS]...",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and which kernels run, and exit.",
        )
    ],
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that `words` (default: the arguments of the process) ask for; return the exit code."""
    open_standard_streams()
    try:
        return _main(list(sys.argv[1:] if words is None else words))
    finally:
        give_up_broken_streams()


def _main(words: list[str]) -> int:
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        completion = shell_completion()
        return int(completion.shell_complete(timestone, {}, "timestone", COMPLETION_VARIABLE, instruction))
    invocation = Invocation()
    try:
        with timestone.make_context("timestone", words or ["--help"], obj=invocation) as context:
            code = timestone.invoke(context)
        sys.stdout.flush()
        return int(code or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE  # the reader of our output has left (`| head`)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        program = error.ctx.command_path if error.ctx is not None else invocation.program
        _complain(f"{program}: {_usage(error)} (see `{program} --help`)")
        return EXIT_USAGE
    except Exception as error:
        if not _expected(error):
            raise
        if invocation.debug:
            with suppress(OSError):
                importlib.import_module("traceback").print_exc()
        else:
            _complain(f"{invocation.program}: {_one_line(error)}")
        code = error.exit_code if isinstance(error, CommandError) else None
        return invocation.exit_failed if code is None else code


def shell_completion() -> Any:
    """Return click's module for completion, with a script for fish that keeps a description with commas whole."""
    module: Any = importlib.import_module("click.shell_completion")
    script = module.FishComplete.source_template.replace('split ","', 'split --max 1 ","')
    module.FishComplete.source_template = script
    return module


def _complain(line: str) -> None:
    with suppress(OSError):  # the exit code says it all the same
        if sys.stderr.isatty():  # else not imported
            line = importlib.import_module(".output.text", __package__).wrapped(line)
        print(line, file=sys.stderr)


def _usage(error: click.UsageError) -> str:
    """Return click's message the way ours are written, with the nearest right name."""
    message = error.format_message()
    if isinstance(error, click.exceptions.NoSuchOption | click.exceptions.NoSuchCommand):
        message = error.message.removesuffix(".")
        if error.possibilities:
            message += f"; did you mean {error.possibilities[0]!r}?"
    message = " ".join(message.split()).removesuffix(".")
    return message[:1].lower() + message[1:]


def _expected(error: Exception) -> bool:
    """Return whether the error is one of the user or the system, not a bug of Timestone."""
    if isinstance(error, (CommandError, OSError)):
        return True
    # Not imported for this test: an error of the engine cannot be raised before the engine is imported.
    engine = sys.modules.get("timestone.errors")
    return engine is not None and isinstance(error, engine.TimestoneError)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
