"""The question before something is deleted that cannot be restored."""

import sys

from ..errors import CommandError, UsageError


def ask_to_delete(name: str, what: str) -> None:
    """Say what a name stands for, and have it typed. Raises UsageError without a terminal, CommandError for any other
    answer."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"cannot ask whether to delete {name} ({what}): standard input is not a terminal; add --yes"
        )
    # On standard error: the question is not a result, and a program may read that.
    print(f"{name}: {what}", f"type {name} to delete it: ", sep="\n", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D
        print(file=sys.stderr)
    if answer.strip() != name:
        raise CommandError("nothing was deleted")
