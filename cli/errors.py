"""What a command raises when it has to give up: a line for the user and an exit code."""

EXIT_FAILED = 1
EXIT_USAGE = 64
"""As in sysexits.h. Not argparse's 2, which from `inspect` means "torn tail": a script has to tell them apart."""
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CommandError(Exception):
    """The command cannot do what it was asked. The text is one line, complete without a traceback."""

    exit_code = EXIT_FAILED


class UsageError(CommandError):
    """The command line or configuration is wrong; nothing was started."""

    exit_code = EXIT_USAGE
