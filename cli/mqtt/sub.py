"""`timestone sub`: print what an MQTT server delivers, for a quick try or for a script."""

import sys
import time
from collections.abc import Sequence

import click

from mqtt_front.codec.packets import Publish, Request
from mqtt_front.protocol.header_block import header_block
from timestone.filters import validate_filter
from timestone.record import decode_headers

from ..errors import CommandError, UsageError
from ..group import Command
from ..input.parameters import Parsed, count_from, duration_ms
from ..output.record_formats import header_list, printable, quote, value_member
from ..process.interrupts import Interrupts
from ..units import format_count
from .connection import HELP_WITHOUT_H, Connection, connected, connection_options

_STEP_S = 0.2
_FOR_EVER_S = 0xFFFF_FFFF
"""A session expiry interval without end."""

EXAMPLES = """\
Examples:
  timestone sub -t 'site/+/boiler' -v
  timestone sub -t '#' --json | jq .topic
  timestone sub -t site/1/boiler -C 1 -W 10s     one message within ten seconds
  timestone sub -t '$stream/mqtt/@earliest/#'    everything from the log `mqtt`
  timestone sub -i desk -c -q 1 -t 'site/#'      and what came while it was away

The last two need a `timestone serve`, the others any server. A message is
printed with a newline behind it, and acknowledged once it is printed. --json
prints a line with topic, qos, retain, headers and value, as `timestone read`.
The options are those of mosquitto_sub, but -P takes a file.

Exit codes: 0 done, 1 failed, refused by the server, or fewer than -C messages
within -W; 64 invalid arguments; 130 interrupted.
"""


def _filter(text: str) -> str:
    validate_filter(text)
    return text


@click.command(cls=Command, epilog=EXAMPLES, context_settings=HELP_WITHOUT_H)
@click.option(
    "-t",
    "--topic",
    "filters",
    metavar="FILTER",
    type=Parsed("filter", _filter),
    multiple=True,
    required=True,
    help="Subscribe to FILTER; repeatable.",
)
@click.option(
    "-q", "--qos", type=click.Choice(["0", "1", "2"]), default="0", help="The highest quality of service."
)
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the message.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each message.")
@click.option("-C", "--count", metavar="N", type=count_from(1), help="Stop after N messages.")
@click.option(
    "-W",
    "--wait",
    "wait_ms",
    metavar="DURATION",
    type=duration_ms("s"),
    help="Stop after this time. Without a unit: seconds.",
)
@click.option("-R", "--no-retained", is_flag=True, help="Leave retained messages out.")
@click.option("-c", "--keep-session", is_flag=True, help="The server keeps the session of -i.")
@connection_options
def command(
    filters: Sequence[str],
    qos: str,
    verbose: bool,
    as_json: bool,
    count: int | None,
    wait_ms: int | None,
    no_retained: bool,
    keep_session: bool,
    connection: Connection,
) -> int:
    """Print what an MQTT server delivers."""
    if keep_session and not connection.client_id:
        raise UsageError("-c needs -i: a session belongs to a client id")
    # Before MQTT 5, retained messages cannot be declined, only left out.
    handling = 2 if no_retained and connection.version == "5" else 0
    requests = [Request(one, int(qos), retain_handling=handling) for one in filters]
    deadline_s = None if wait_ms is None else time.monotonic() + wait_ms / 1000
    left = count
    with (
        Interrupts() as interrupts,
        connected(
            connection, clean=not keep_session, expiry_s=_FOR_EVER_S if keep_session else None
        ) as client,
    ):
        client.subscribe(requests)
        while left != 0 and not interrupts.requested:
            wait_s = _STEP_S if deadline_s is None else min(_STEP_S, deadline_s - time.monotonic())
            if wait_s < 0:
                break
            message = client.receive(wait_s)
            if message is None:
                continue
            if not (no_retained and message.retain):
                _print(_json_line(message) if as_json else _line(message, verbose=verbose))
                left = None if left is None else left - 1
            client.acknowledge(message)
    if left and not interrupts.requested:
        raise CommandError(
            f"{(count or 0) - left} of {format_count(count or 0, 'message')} came within the time of -W"
        )
    return interrupts.exit_code


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _line(message: Publish, *, verbose: bool) -> bytes:
    payload = printable(message.payload) if sys.stdout.isatty() else message.payload
    return message.topic.encode() + b" " + payload if verbose else payload


def _json_line(message: Publish) -> bytes:
    headers = header_list(decode_headers(header_block(message.properties)))
    retain = "true" if message.retain else "false"
    return (
        f'{{"topic":{quote(message.topic)},"qos":{message.qos},"retain":{retain},"headers":{headers},'
        f"{value_member(message.payload)}}}"
    ).encode()
