"""`timestone clients`: the connected clients of a running server, and what each has sent and received."""

from pathlib import Path

import click
from rich.console import Console

from ..control.caller import Caller
from ..group import Command
from ..input.parameters import DIRECTORY
from ..output.json_object import print_json
from ..output.tables import fits, print_split, print_tables
from .client_rows import ATTACHED, clients_table

EXAMPLES = """\
Examples:
  timestone clients data                  a line for each connected client
  timestone clients data --client dev-17  only this one
  timestone clients data --json | jq '.clients[] | select(.lag > 99)'

DIR is the store of a server that runs on this machine. in and out are messages
from and to the client on this connection, in B and out B their bytes. window
is the number of messages that the client has not acknowledged; lag the number
of offsets in the logs of its subscriptions that were not sent to it yet, of
any topic; unsent are bytes that its socket does not take.

Sessions without a connection are not listed.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store of a running server.")
@click.option("--client", metavar="ID", help="Only the client with this id.")
@click.option("--user", metavar="USER", help="Only clients of this user.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, client: str | None, user: str | None, as_json: bool) -> None:
    """List the connected clients of a running server."""
    with Caller(directory) as server:
        rows = [
            row for row in server.clients() if client in (None, row["client"]) and user in (None, row["user"])
        ]
    if as_json:
        print_json({"path": str(directory), "clients": rows})
        return
    if not rows:
        print(
            "no clients are connected" if client is None and user is None else "no such client is connected"
        )
        return
    table = clients_table(rows)

    def fill(console: Console) -> None:
        if fits(console, table):
            console.print(table)
        else:
            print_split(console, table, attached=ATTACHED)

    print_tables(fill)
