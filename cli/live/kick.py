"""`timestone kick`: disconnect a client of a running server."""

from pathlib import Path
from typing import Any

import click

from ..control.caller import Caller
from ..errors import CommandError
from ..group import Command
from ..input.parameters import DIRECTORY
from ..output.json_object import print_json
from ..output.text import print_text
from .client_rows import shown

EXAMPLES = """\
Examples:
  timestone kick data dev-17              end the connection of this client
  timestone kick data dev-17 --user anna  only that of this user
  timestone kick data dev-17 --end-session its subscriptions are lost
  timestone kick data dev-17 --json

A client of MQTT 5 gets DISCONNECT with reason 0x98 (administrative action), a
client of MQTT 3 a closed connection. Its session stays, and its will is
published. It may connect again at once: to keep it out, change the password or
access file. With --end-session its session ends too, also that of a client that
is away: what waits for it is lost.

Exit codes: 0 disconnected, 1 no such client is connected or has a session.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store of a running server.")
@click.argument("client", metavar="CLIENT", help="The id of the client.")
@click.option("--user", metavar="USER", help="Only the client of this user: users may use the same id.")
@click.option("--end-session", is_flag=True, help="End its session, too, for good.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, client: str, user: str | None, end_session: bool, as_json: bool) -> int:
    """Disconnect a client of a running server."""
    was_away = False
    ended: list[dict[str, Any]] = []
    with Caller(directory) as server:
        for front in server.call("status")["fronts_with_clients"]:
            request = "end_session" if end_session else "disconnect"
            found = server.call(request, front=front, client=client, user=user)
            ended += [{"front": front, **row} for row in found["disconnected"]]
            was_away = was_away or found.get("was_away", False)
    if as_json:
        print_json({"path": str(directory), "disconnected": ended})
        return 0 if ended or was_away else 1
    if was_away:
        print_text(f"ended the session of {shown(client)}, which was away")
        return 0
    if not ended:
        of_user = "" if user is None else f" of user {user!r}"
        raise CommandError(f"no client {client!r}{of_user} is connected")
    for row in ended:
        of_user = "" if row["user"] is None else f" of user {shown(row['user'])}"
        print_text(f"disconnected {shown(row['client'])}{of_user} at {row['address']}")
    return 0
