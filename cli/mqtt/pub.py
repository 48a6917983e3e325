"""`timestone pub`: publish to an MQTT server, for a quick try or from a script."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mqtt_front.client import Client
from mqtt_front.codec.packets import Publish
from timestone.filters import validate_topic

from ..errors import UsageError
from ..group import Command
from ..input.line_reader import LineReader
from ..input.parameters import FILE, Parsed
from .connection import HELP_WITHOUT_H, Connection, connected, connection_options

_LINE_BYTES = 256 << 20
"""The largest packet of MQTT."""

EXAMPLES = """\
Examples:
  timestone pub -t site/1/boiler -m '{"celsius": 21.9}' -q 1
  timestone pub -t site/1/state -m on -r      the server retains it
  timestone pub -t site/1/state -n -r         and deletes it again
  producer | timestone pub -t site/1/raw -l -q 1
  timestone pub -h broker.example -u alice -P alice.password --tls -t a -m b

With -q 1 or 2 the command ends when the server has acknowledged every message:
`timestone serve` does so when they are on the disk. The options are those of
mosquitto_pub, but -P takes a file: every user of the machine can see the
options of a command.

Exit codes: 0 done, 1 failed or refused by the server, 64 invalid arguments.
"""


def _topic(text: str) -> str:
    validate_topic(text)
    return text


@click.command(cls=Command, epilog=EXAMPLES, context_settings=HELP_WITHOUT_H)
@click.option(
    "-t", "--topic", metavar="TOPIC", type=Parsed("topic", _topic), required=True, help="Publish to TOPIC."
)
@click.option("-m", "--message", metavar="TEXT", help="Publish TEXT.")
@click.option("-f", "--file", metavar="FILE", type=FILE, help="Publish the content of FILE.")
@click.option("-s", "--stdin", "whole", is_flag=True, help="Publish standard input as one message.")
@click.option("-l", "--lines", is_flag=True, help="Publish each line of standard input, as it arrives.")
@click.option("-n", "--null", "empty", is_flag=True, help="Publish an empty message.")
@click.option("-q", "--qos", type=click.Choice(["0", "1", "2"]), default="0", help="Quality of service.")
@click.option("-r", "--retain", is_flag=True, help="The server keeps the message for later subscribers.")
@connection_options
def command(
    topic: str,
    message: str | None,
    file: Path | None,
    whole: bool,
    lines: bool,
    empty: bool,
    qos: str,
    retain: bool,
    connection: Connection,
) -> None:
    """Publish to an MQTT server."""
    if [message is not None, file is not None, whole, lines, empty].count(True) != 1:
        raise UsageError("expected exactly one of -m, -f, -s, -l and -n")
    payload = b""
    if message is not None:
        payload = message.encode()
    elif file is not None:
        payload = file.read_bytes()
    elif whole:
        payload = sys.stdin.buffer.read()
    with connected(connection) as client:
        for one in _lines(client) if lines else [payload]:
            client.publish(Publish(topic, one, int(qos), retain))
        client.flush()


def _lines(client: Client) -> Iterator[bytes]:
    """Yield the lines of standard input; between them, let the client answer the server."""
    reader = LineReader(sys.stdin.fileno(), _LINE_BYTES)
    while not reader.ended:
        yield from reader.read()
        client.receive(0)
