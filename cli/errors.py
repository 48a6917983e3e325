"""Errors that end a command: one line for the user and an exit code."""

EXIT_FAILED = 1
EXIT_USAGE = 64
"""EX_USAGE of sysexits.h. Not click's 2, which from `inspect` means a torn tail: scripts must tell the two apart."""
EXIT_SYSTEM = 74
"""EX_IOERR of sysexits.h, for commands whose 1 is taken."""
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CommandError(Exception):
    """Failure of a command. The text is one line, complete without a traceback."""

    exit_code: int | None = None
    """The exit code; None for that of the command, which is EXIT_FAILED for most."""


class UsageError(CommandError):
    """Wrong command line or configuration; nothing was started."""

    exit_code = EXIT_USAGE
