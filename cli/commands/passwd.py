"""`timestone passwd`: users and passwords for the MQTT front.

Passwords are typed or come through standard input, never on the command line, where everybody on the machine could read
them. The file itself is the business of the front; this is the one command that knows it.
"""

import argparse
import getpass
import sys

from mqtt_front.runtime.optional import MissingExtra
from mqtt_front.security.password_file import (
    BadPasswordFile,
    UnknownUser,
    remove_user,
    set_password,
    validate_user,
)

from ..errors import CommandError, UsageError
from ..parser import given_path

EXAMPLES = """\
examples:
  timestone passwd passwords alice               asks for the password, twice
  pwgen -s 32 1 | timestone passwd passwords dev the first line of standard input
  timestone passwd passwords sensor --scram      for MQTT 5 clients that use SCRAM-SHA-256
  timestone passwd passwords alice --delete

A server that uses the file takes changes over at SIGHUP: kill -HUP PID. Files of mosquitto can
be changed as well; their hashes stay until a password is set anew.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `passwd`."""
    parser.description = "Set the password of a user in a password file, with argon2id."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "file", metavar="FILE", type=given_path, help="the password file; created when missing"
    )
    parser.add_argument("user", metavar="USER", help="whose password it is")
    parser.add_argument(
        "--scram",
        action="store_true",
        help="keep the password as SCRAM-SHA-256 needs it instead of with argon2id; clients may use either way then",
    )
    parser.add_argument("--delete", action="store_true", help="take the user out of the file instead")


def run(arguments: argparse.Namespace) -> int:
    """Change the file; 0 when it is on the disk."""
    path, user = arguments.file, arguments.user
    try:
        validate_user(user)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        if arguments.delete:
            remove_user(path, user)
            print(f"{path}: {user} is gone")
        else:
            new = set_password(path, user, _password(), scram=arguments.scram)
            print(f"{path}: {user} is new" if new else f"{path}: {user} has a new password")
    except UnknownUser:
        raise CommandError(f"{path}: there is no user {user!r}") from None
    except (BadPasswordFile, MissingExtra) as error:
        raise CommandError(str(error)) from None
    return 0


def _password() -> bytes:
    """Asked for twice on a terminal, else the first line of standard input, which may hold any bytes but a newline."""
    if not sys.stdin.isatty():
        line = sys.stdin.buffer.readline()
        password = line.removesuffix(b"\n").removesuffix(b"\r")
    else:
        password = _typed("Password: ")
        if password and _typed("Once more: ") != password:
            raise CommandError("the passwords differ; nothing was changed")
    if not password:
        raise CommandError("an empty password; nothing was changed")
    return password


def _typed(prompt: str) -> bytes:
    try:
        return getpass.getpass(prompt).encode()
    except EOFError:  # Ctrl-D
        raise CommandError("no password was typed; nothing was changed") from None
