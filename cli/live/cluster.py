"""`timestone cluster`: make a cluster in etcd, make its logs, look at it, move its replicas, and append to it.

The commands, their errors and their output. `timestone_cluster` does the work.
"""

import asyncio
import importlib
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from timestone.errors import MissingExtra

from ..errors import EXIT_SYSTEM, CommandError, UsageError
from ..group import Group
from ..input.parameters import FILE
from ..output.json_object import print_json
from ..output.tables import print_tables, simple_table
from ..output.text import print_text
from ..settings.assignments import given_settings
from ..units import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from timestone_cluster.etcd.client import EtcdClient
    from timestone_cluster.etcd.keys import ClusterKeys
    from timestone_cluster.operations import ClusterStatus
    from timestone_cluster.recovery import Plan

T = TypeVar("T")
EXAMPLES = """\
Examples:
  timestone cluster init etcd://127.0.0.1:2379/plant
  timestone cluster create-log etcd://127.0.0.1:2379/plant telemetry
  timestone serve --cluster etcd://127.0.0.1:2379/plant --data a
  timestone cluster status etcd://127.0.0.1:2379/plant
  timestone cluster COMMAND --help           options and examples of a command

URL: etcd://HOST:PORT[,HOST:PORT...]/NAME, some endpoints of etcd and the name
of the cluster there. With --ca, --certificate and --key, connections are TLS;
with --user and --password-file, etcd is asked as one of its users.
"""
_INIT = """\
Examples:
  timestone cluster init etcd://10.0.0.1:2379,10.0.0.2:2379/plant
  timestone cluster init etcd://127.0.0.1:2379/plant --shards 4

Writes one key to etcd. Nodes that are started with the same URL find each other
there, in any order; the shards are led as soon as there are as many nodes as
replicas. Three replicas survive the loss of one node. Two replicas lose no
record when one is lost, but stop to append until it is back.
"""
_CREATE = """\
Examples:
  timestone cluster create-log etcd://127.0.0.1:2379/plant telemetry
  timestone cluster create-log etcd://127.0.0.1:2379/plant flow retention_ms=7d

Each shard has one partition of the log. The nodes make theirs within moments.
Settings as for `timestone configure`: retention_ms, retention_bytes (of each
partition), segment_bytes, segment_entries, segment_age_ms.
"""
_CONFIGURE = """\
Examples:
  timestone cluster configure-log etcd://e1:2379/plant flow retention_ms=7d
  timestone cluster configure-log etcd://e1:2379/plant flow retention_bytes=8GiB
  timestone cluster configure-log etcd://e1:2379/plant flow

Without a setting, the command prints those that are set. The leader of a shard
deletes what retention does not keep, then the other replicas do. It cannot be
restored. A replica that was away for longer begins again where its leader does.
"""
_STATUS = """\
Examples:
  timestone cluster status etcd://127.0.0.1:2379/plant
  timestone cluster status etcd://127.0.0.1:2379/plant --json | jq .shards

Exit codes: 0 every shard has a leader, or the cluster has no log; 1 a shard has
none; 64 invalid arguments, or the cluster is not in etcd; 74 etcd does not
answer.
"""
_REPLACE = """\
Examples:
  timestone cluster replace etcd://127.0.0.1:2379/plant b d
  timestone cluster replace etcd://127.0.0.1:2379/plant 5f0e6a1b2c3d4e5f d

NEW copies every shard of OLD, one after another, and takes its place once it is
in sync. OLD may run, or be lost: then it is named by its id, which `cluster
status` shows. If OLD leads a shard, NEW leads it next; stop OLD before, if it
runs, so that no append is interrupted. The files of OLD stay where they are.
If NEW is not in sync in time, nothing is changed; the command may be repeated.
"""
_MOVE = """\
Examples:
  timestone cluster move etcd://127.0.0.1:2379/plant 3 a d

As `replace`, for one shard: NEW copies it, and takes the place of OLD once it
is in sync. OLD may run, or be lost.
"""
_DRAIN = """\
Examples:
  timestone cluster drain etcd://127.0.0.1:2379/plant a    before it is stopped
  timestone cluster drain etcd://127.0.0.1:2379/plant a --undo    to undo that

The node hands over what it leads, without an append of unknown outcome, and
leads nothing while another node may. The command ends once the node may be
stopped: no shard loses its leader or its minimum of in-sync replicas by it.
Then stop it, upgrade it, start it, and let it lead again with --undo, also
before it runs again.
"""
_RECOVER = """\
Examples:
  timestone cluster recover etcd://127.0.0.1:2379/plant --shard 0
  timestone cluster recover etcd://127.0.0.1:2379/plant --shard 0 --node c --yes

For a shard whose in-sync replicas are all lost: start what can be started
first, because any of them leads by itself and loses nothing. Without --yes the
command shows what each replica has, and changes nothing. With it the replica
that has the most, or NODE, leads, and serves once another one has caught up.
Acknowledged records that it lacks are lost, and their offsets are given again;
`cluster status` shows that for good.
"""
_REPAIR = """\
Examples:
  timestone cluster repair-metadata etcd://127.0.0.1:2379/plant
  timestone cluster repair-metadata etcd://127.0.0.1:2379/plant --yes

For an etcd that was restored from an old backup, or has lost the record of a
shard. Start all nodes again first. Without --yes the command shows what it
would do. A repaired shard begins 1,000 generations above the highest one that a
node knows, led by the replica that has all that the others have: nothing
acknowledged is lost. For that, at least two replicas of three have to answer.
"""
_APPEND = """\
Examples:
  echo hello | timestone cluster append etcd://127.0.0.1:2379/plant telemetry
  timestone cluster append etcd://127.0.0.1:2379/plant telemetry < lines.txt

Appends one record for each line of input through the leader of the shard, and
prints the offset of each once all in-sync replicas have it on their disks. If
the leader is lost, it looks for the next one and appends again what was not
acknowledged: such a record may be in the log twice.
"""


def _connection(function: Callable[..., T]) -> Callable[..., T]:
    function = click.option("--user", metavar="NAME", help="User of etcd, where etcd has users.")(function)
    for name, text in (
        ("password-file", "File whose first line is the password of that user."),
        ("key", "PEM file with the key of that certificate."),
        ("certificate", "PEM file with the own certificate."),
        ("ca", "PEM file with who signs all certificates; connections are TLS then."),
    ):
        function = click.option(f"--{name}", type=FILE, help=text)(function)
    return click.argument("url", metavar="URL", help="The cluster.")(function)


_SETTINGS = click.argument("settings", metavar="[SETTING=VALUE]...", nargs=-1, help="Settings of the log.")


@click.group(cls=Group, epilog=EXAMPLES)
def command() -> None:
    """Make a cluster of nodes that hold the same logs, and look at it."""


@command.command(epilog=_INIT, exit_failed=EXIT_SYSTEM)
@_connection
@click.option("--shards", type=int, default=1, help="Units of leadership; cannot change later.")
@click.option("--replicas", type=int, default=3, help="Nodes that have each shard.")
def init(url: str, shards: int, replicas: int, **access: Any) -> None:
    """Make a cluster in etcd."""
    operations = _module("operations")
    made = _with_etcd(
        url, access, lambda etcd, keys: operations.make_cluster(etcd, keys, shards=shards, replicas=replicas)
    )
    print_text(
        f"cluster {made.id}: {format_count(made.shards, 'shard')}, {made.replicas} replicas, "
        f"{made.min_isr} in sync at least"
    )


@command.command("create-log", epilog=_CREATE, exit_failed=EXIT_SYSTEM)
@_connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@_SETTINGS
def create_log(url: str, log: str, settings: Sequence[str], **access: Any) -> None:
    """Make a log in all shards."""
    operations, given = _module("operations"), given_settings(settings)
    is_new = _with_etcd(url, access, lambda etcd, keys: operations.make_log(etcd, keys, log, given))
    print_text(f"log {log}" if is_new else f"log {log} is there already")


@command.command("configure-log", epilog=_CONFIGURE, exit_failed=EXIT_SYSTEM)
@_connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@_SETTINGS
def configure_log(url: str, log: str, settings: Sequence[str], **access: Any) -> None:
    """Change settings of a log, in all shards."""
    operations, given = _module("operations"), given_settings(settings)
    value = _with_etcd(url, access, lambda etcd, keys: operations.configure_log(etcd, keys, log, given))
    words = [f"{name}={number}" for name, number in sorted(value.settings.items())]
    print_text(f"log {log}: {' '.join(words) or 'nothing is set'}")


@command.command(epilog=_STATUS, exit_failed=EXIT_SYSTEM)
@_connection
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(url: str, as_json: bool, **access: Any) -> int:
    """Show nodes, shards and logs as etcd has them."""
    operations = _module("operations")
    found: ClusterStatus = _with_etcd(url, access, operations.cluster_status)
    if as_json:
        print_json(
            {
                "cluster": asdict(found.cluster),
                "logs": found.logs,
                "nodes": [one._asdict() for one in found.nodes],
                "shards": [
                    {**one._asdict(), "unclean": [asdict(each) for each in one.unclean]}
                    for one in found.shards
                ],
            }
        )
    else:
        print_tables(lambda console: _print_status(console, found))
    return 0 if not found.logs or all(one.is_led for one in found.shards) else 1


def _print_status(console: "Console", found: "ClusterStatus") -> None:
    names = {one.id: one.name for one in found.nodes}
    logs = ", ".join(found.logs) or "none"
    console.print(
        f"cluster {found.cluster.id}: {format_count(found.cluster.shards, 'shard')}, "
        f"{found.cluster.replicas} replicas, {found.cluster.min_isr} in sync at least; logs: {logs}",
        soft_wrap=True,
    )
    nodes, shards = simple_table(), simple_table()
    for heading in ("node", "name", "address"):
        nodes.add_column(heading)
    for one in found.nodes:
        nodes.add_row(one.id, one.name, one.address + ("; draining" if one.is_draining else ""))
    for heading in ("shard", "leader", "in sync", "replicas"):
        shards.add_column(heading)
    shards.add_column("generation", justify="right")
    for shard in found.shards:
        leader = "none" if shard.leader is None else names.get(shard.leader, f"{shard.leader} (gone)")
        leader = "record is gone" if shard.is_lost else leader
        in_sync, replicas, adding = (
            ", ".join(names.get(node, node) for node in group)
            for group in (shard.in_sync, shard.replicas, shard.adding)
        )
        replicas += f"; copying: {adding}" if adding else ""
        shards.add_row(
            str(shard.number), leader, in_sync or "none", replicas or "none", str(shard.generation)
        )
    for table in (nodes, shards):
        console.print()
        console.print(table)
    for shard in found.shards:
        for lost in shard.unclean:
            console.print(
                f"shard {shard.number}: generation {lost.generation} began by command: records of {lost.log} from "
                f"offset {lost.offset} on may have been lost, and others have their offsets",
                soft_wrap=True,
            )


@command.command(epilog=_REPLACE, exit_failed=EXIT_SYSTEM)
@_connection
@click.argument("old", metavar="OLD", help="Node that leaves: its id, or its name if it runs.")
@click.argument("new", metavar="NEW", help="Node that takes its place: its id or name.")
@click.option("--timeout-s", type=float, default=3600.0, help="Time for each shard.")
def replace(url: str, old: str, new: str, timeout_s: float, **access: Any) -> None:
    """Put a node in the place of another one."""
    _replace(url, old, new, None, timeout_s, access)


@command.command(epilog=_MOVE, exit_failed=EXIT_SYSTEM)
@_connection
@click.argument("shard", metavar="SHARD", type=int, help="Number of the shard.")
@click.argument("old", metavar="OLD", help="Node that gives its replica: its id, or its name if it runs.")
@click.argument("new", metavar="NEW", help="Node that takes it: its id or name.")
@click.option("--timeout-s", type=float, default=3600.0, help="Time for the shard.")
def move(url: str, shard: int, old: str, new: str, timeout_s: float, **access: Any) -> None:
    """Move the replica of one shard to another node."""
    _replace(url, old, new, shard, timeout_s, access)


def _replace(
    url: str, old: str, new: str, shard: int | None, timeout_s: float, access: dict[str, Any]
) -> None:
    moving = _module("moving")
    try:
        _with_etcd(
            url,
            access,
            lambda etcd, keys: moving.replace_node(
                etcd, keys, old, new, only=shard, timeout_s=timeout_s, progress=_progress
            ),
        )
    except TimeoutError:
        raise CommandError(f"{new} was not in sync within {timeout_s:g} s: nothing is changed") from None


def _progress(line: str) -> None:
    print(line, flush=True)


@command.command(epilog=_DRAIN, exit_failed=EXIT_SYSTEM)
@_connection
@click.argument("node", metavar="NODE", help="Id or name of the node.")
@click.option("--undo", is_flag=True, help="Let the node lead again.")
@click.option("--timeout-s", type=float, default=60.0, help="Time until the node may be stopped.")
def drain(url: str, node: str, undo: bool, timeout_s: float, **access: Any) -> None:
    """Have a node give away what it leads, so that it may be stopped."""
    moving = _module("moving")
    if undo:
        _with_etcd(url, access, lambda etcd, keys: moving.undrain_node(etcd, keys, node))
        print_text(f"{node} may lead again")
        return
    try:
        _with_etcd(
            url,
            access,
            lambda etcd, keys: moving.drain_node(etcd, keys, node, timeout_s=timeout_s, progress=_progress),
        )
    except TimeoutError:
        raise CommandError(
            f"{node} may not be stopped yet, after {timeout_s:g} s; it is drained still"
        ) from None


@command.command(epilog=_RECOVER, exit_failed=EXIT_SYSTEM)
@_connection
@click.option("--shard", type=int, required=True, help="Number of the shard.")
@click.option("--node", help="Id or name of the node that is to lead.  [default: the one with the most]")
@click.option("--yes", is_flag=True, help="Do it.")
def recover(url: str, shard: int, node: str | None, yes: bool, **access: Any) -> None:
    """Have a replica lead that may lack acknowledged records, when all others are lost."""
    recovery = _module("recovery")

    async def run(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        plan = await recovery.plan_recovery(etcd, keys, shard, node=node, context=_context(access))
        _print_reports([plan])
        for one in plan.record.unclean[-len(plan.chosen.logs) :]:
            print(f"shard {shard}: records of {one.log} from offset {one.offset} on are given up")
        await _apply(etcd, keys, [plan], yes)

    _with_etcd(url, access, run)


@command.command("repair-metadata", epilog=_REPAIR, exit_failed=EXIT_SYSTEM)
@_connection
@click.option("--yes", is_flag=True, help="Do it.")
def repair_metadata(url: str, yes: bool, **access: Any) -> None:
    """Make the records of shards in etcd again, from what the nodes have."""
    recovery = _module("recovery")

    async def run(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        plans, refused = await recovery.plan_repair(etcd, keys, context=_context(access))
        _print_reports(plans)
        await _apply(etcd, keys, plans, yes)
        if refused:
            raise CommandError("; ".join(refused))
        if not plans:
            print("nothing to repair")

    _with_etcd(url, access, run)


def _print_reports(plans: "Sequence[Plan]") -> None:
    table = simple_table()
    for heading in ("shard", "node", "log"):
        table.add_column(heading)
    for heading in ("start", "end", "committed", "generation"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for plan in plans:
        for report in plan.reports:
            for log in report.logs:
                numbers = (log.start, log.end, log.committed, log.last_generation)
                words = "would lead" * (report is plan.chosen) or "damaged" * log.is_damaged
                table.add_row(str(plan.shard), report.name, log.name, *map(str, numbers), words)
    if plans:
        print_tables(lambda console: console.print(table))


async def _apply(etcd: "EtcdClient", keys: "ClusterKeys", plans: "Sequence[Plan]", yes: bool) -> None:
    for plan in plans:
        if yes and not await plan.apply(etcd, keys):
            raise CommandError(
                f"shard {plan.shard} has changed since it was read: nothing was done to it; repeat the command"
            )
        print(f"shard {plan.shard}: {plan.chosen.name} {'leads' if yes else 'would lead'} next")
    if plans and not yes:
        print("nothing was changed; --yes does it")


def _context(access: dict[str, Any]) -> ssl.SSLContext | None:
    certificates = _certificates(access)
    found: ssl.SSLContext | None = certificates.client_context() if certificates is not None else None
    return found


@command.command(epilog=_APPEND, exit_failed=EXIT_SYSTEM)
@_connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@click.option("--topic", help="Topic of the records.")
@click.option("--shard", type=int, default=0, help="Shard to append to.")
@click.option("--timeout-s", type=float, default=30.0, help="Time for each record.")
def append(url: str, log: str, topic: str | None, shard: int, timeout_s: float, **access: Any) -> None:
    """Append one record for each line of input."""
    client_module = _module("node.client")

    async def lines(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        client = client_module.ClusterClient(etcd, keys, context=_context(access))
        topics = [] if topic is None else [topic]
        try:
            while line := await asyncio.to_thread(sys.stdin.buffer.readline):
                payload = line.removesuffix(b"\n")
                print(
                    await client.append_again(log, [payload], topics=topics, shard=shard, timeout_s=timeout_s)
                )
        except TimeoutError:
            raise CommandError(f"a record was not acknowledged within {timeout_s:g} s") from None
        finally:
            await client.close()

    _with_etcd(url, access, lines)


def _with_etcd(
    url: str, access: dict[str, Any], work: "Callable[[EtcdClient, ClusterKeys], Awaitable[T]]"
) -> T:
    certificates = _certificates(access)
    address_module = _module("etcd.address")
    try:
        address = address_module.ClusterAddress.parse(url)
        etcd = address.client(
            certificates, address_module.read_login(access["user"], access["password_file"])
        )
    except (ValueError, ssl.SSLError) as error:
        raise UsageError(str(error)) from None

    async def run() -> T:
        async with etcd:
            return await work(etcd, address.keys)

    try:
        return asyncio.run(run())
    except ValueError as error:
        raise UsageError(str(error)) from None


def _certificates(access: dict[str, Any]) -> Any:
    given = [access[name] for name in ("ca", "certificate", "key")]
    if not any(given):
        return None
    if not all(given):
        raise UsageError("expected --ca, --certificate and --key together")
    return _module("etcd.address").Certificates(*given)


def _module(name: str) -> Any:
    """Return a module of the cluster. Raises MissingExtra."""
    try:
        return importlib.import_module(f"timestone_cluster.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("timestone"):
            raise
        raise MissingExtra("a cluster", error.name or "httpx", "cluster") from None
