"""`timestone passwd`: users and passwords for the MQTT front.

Passwords are typed or read from standard input. They are never options, which every user of the machine can see. The
format of the file belongs to the front; this is the one command that knows it.
"""

import getpass
import sys
from pathlib import Path

import click

from timestone_access.optional import MissingExtra
from timestone_access.passwords.password_file import (
    BadPasswordFile,
    UnknownUser,
    remove_user,
    set_password,
    validate_user,
)

from ..errors import CommandError, UsageError
from ..group import Command
from ..input.parameters import FILE

EXAMPLES = """\
Examples:
  timestone passwd passwords alice           ask for the password, twice
  pwgen -s 32 1 | timestone passwd passwords dev   read it from standard input
  timestone passwd passwords sensor --scram  for MQTT 5 clients with SCRAM
  timestone passwd passwords alice --delete

A server that uses the file reads it again at SIGHUP: kill -HUP PID. Files of
mosquitto can be changed, too; their hashes stay until a password is set.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("file", metavar="FILE", type=FILE, help="The password file; created when missing.")
@click.argument("user", metavar="USER", help="The name of the user.")
@click.option(
    "--scram",
    is_flag=True,
    help="Store the password as SCRAM-SHA-256 needs it instead of with argon2id; clients may then use either way.",
)
@click.option("--delete", is_flag=True, help="Remove the user from the file.")
def command(file: Path, user: str, scram: bool, delete: bool) -> None:
    """Set the password of a user in a password file, with argon2id."""
    try:
        validate_user(user)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        if delete:
            remove_user(file, user)
            print(f"{file}: removed {user}")
        else:
            new = set_password(file, user, _password(), scram=scram)
            print(f"{file}: added {user}" if new else f"{file}: changed the password of {user}")
    except UnknownUser:
        raise CommandError(f"{file}: unknown user {user!r}") from None
    except (BadPasswordFile, MissingExtra) as error:
        raise CommandError(str(error)) from None


def _password() -> bytes:
    """Ask twice on a terminal, else read the first line of standard input, which may hold any bytes but a newline."""
    if not sys.stdin.isatty():
        line = sys.stdin.buffer.readline()
        password = line.removesuffix(b"\n").removesuffix(b"\r")
    else:
        password = _typed("Password: ")
        if password and _typed("Once more: ") != password:
            raise CommandError("the passwords differ; nothing was changed")
    if not password:
        raise CommandError("the password is empty; nothing was changed")
    return password


def _typed(prompt: str) -> bytes:
    try:
        return getpass.getpass(prompt).encode()
    except EOFError:  # Ctrl-D
        raise CommandError("no password was typed; nothing was changed") from None
