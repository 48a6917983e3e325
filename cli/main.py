"""Finds the command asked for, runs it, and turns what escapes from it into one line and an exit code.

Belongs here: the table of commands and the options all of them share. Must not know what any command does. Imports
nothing heavier than argparse: `timestone --help` answers from the table, and only the command that runs is imported.
"""

import argparse
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from .errors import EXIT_BROKEN_PIPE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, CommandError
from .parser import CommandParser
from .process.interrupts import killable
from .process.standard_streams import give_up_broken_streams, open_standard_streams


class Command(NamedTuple):
    """A command: where it lives (a module with `add_arguments` and `run`) and what `--help` says of it."""

    module: str
    summary: str


COMMANDS = {
    "serve": Command(".commands.serve", "own a store and let clients in over MQTT"),
    "inspect": Command(".commands.inspect", "show logs and segments and say whether they are sound"),
    "read": Command(
        ".commands.read", "print the records of a log, from any offset or time, also while it grows"
    ),
    "append": Command(".commands.append", "append one record for each line of input"),
    "configure": Command(
        ".commands.configure", "show and change the settings of logs that exist, as retention"
    ),
    "passwd": Command(".commands.passwd", "set the password of a user of the MQTT front"),
    "readers": Command(".commands.readers", "show who has read how far, release pins, forget readers"),
    "backup": Command(".commands.backup", "copy a store whole, also while a server writes it"),
    "salvage": Command(".commands.salvage", "copy what can still be proved out of a damaged store"),
    "delete": Command(".commands.delete", "delete a log with all its records"),
    "parquet": Command(
        ".commands.parquet", "keep a Parquet file of each sealed segment, for Spark and others"
    ),
    "pipeline": Command(".commands.pipeline", "turn the records of a log into exact tables, with Spark"),
    "bench": Command(".commands.bench", "measure this machine against what it could do without Timestone"),
}

EXAMPLES = """\
examples:
  timestone serve                              store in ./timestone-data, MQTT on 127.0.0.1:1883
  timestone inspect timestone-data             what is in there, and is it sound?
  timestone read timestone-data mqtt --follow  every record as a line of JSON, as it arrives
  timestone COMMAND --help                     options and examples of a command
"""
_DEBUG_HELP = "show the traceback of an error"


class _Version(argparse.Action):
    """`--version`, which looks the version up only when it is asked for: that import costs more than the help."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and stop")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        version = importlib.import_module(".process.version", __package__)
        print(f"timestone {version.timestone_version()}", flush=True)
        parser.exit()


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that `words` (default: the process's arguments) ask for; returns the exit code."""
    open_standard_streams()
    try:
        return _main(list(sys.argv[1:] if words is None else words))
    finally:
        give_up_broken_streams()


def _main(words: list[str]) -> int:
    # Taken out by hand: it may stand anywhere, also behind an inner command whose parser does not know it.
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    name = next((word for word in words if not word.startswith("-")), None)
    module = None
    try:
        with killable():
            module = _load(name) if name is not None else None
            parser = _parser(name, module)
            arguments = parser.parse_args(words)
            if module is None:
                parser.print_help()
                return 0
        code = int(module.run(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE  # whoever read our output has left (`| head`)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if not _expected(error):
            raise
        with suppress(OSError):  # where nobody can be told, the exit code still says it
            if debug:
                traceback.print_exc()
            else:
                print(f"{_program(name, module)}: {_one_line(error)}", file=sys.stderr)
        if isinstance(error, CommandError):
            return error.exit_code
        return int(getattr(module, "EXIT_FAILED", EXIT_FAILED))


def _load(name: str) -> ModuleType:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"
        error = CommandError(f"no command {name!r}; {hint}")
        error.exit_code = EXIT_USAGE
        raise error
    return importlib.import_module(COMMANDS[name].module, __package__)


def _parser(name: str | None, module: ModuleType | None) -> CommandParser:
    parser = CommandParser(
        prog="timestone",
        description="A commit log for Python programs, MQTT devices and Spark jobs.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action=_Version)
    parser.add_argument("--debug", action="store_true", help=_DEBUG_HELP)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for each, command in COMMANDS.items():
        inner = commands.add_parser(each, help=command.summary)
        if each == name and module is not None:
            module.add_arguments(inner)
            inner.add_argument("--debug", action="store_true", help=_DEBUG_HELP)
    return parser


def _program(name: str | None, module: ModuleType | None) -> str:
    return "timestone" if module is None else f"timestone {name}"


def _expected(error: Exception) -> bool:
    """Is this an answer for the user, and not a bug of ours?"""
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
