"""`timestone cluster`: make a cluster in etcd, make its logs, look at it, and append to it.

The commands, their errors and their output. `timestone_cluster` does the work.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import EXIT_SYSTEM, CommandError
from ..group import Group
from ..input.confirmation import ask_to_delete
from ..input.parameters import SECONDS, duration_ms
from ..output.json_object import print_json
from ..output.tables import print_tables, simple_table
from ..output.text import print_text
from ..settings.assignments import given_settings
from ..units import format_count, format_duration
from . import cluster_nodes
from .cluster_access import cluster_module, connection, tls_context, with_etcd

if TYPE_CHECKING:
    from rich.console import Console

    from timestone_cluster.etcd.client import EtcdClient
    from timestone_cluster.etcd.keys import ClusterKeys
    from timestone_cluster.operations import ClusterStatus, ShardStatus

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
  timestone cluster init etcd://127.0.0.1:2379/plant --ack written

Writes one key to etcd. Nodes that are started with the same URL find each other
there, in any order; the shards are led as soon as there are as many nodes as
replicas. Three replicas survive the loss of one node. Two replicas lose no
record when one is lost, but stop to append until it is back.

With --ack written, replicas flush a record within a second and not before it
is acknowledged. No record is lost when processes are killed, or when a machine
loses power while an in-sync replica on another one keeps it. When all in-sync
replicas of a shard lose power within a second or so, their last records may be
lost, and the shard waits for `timestone cluster recover`.
"""
_CREATE = """\
Examples:
  timestone cluster create-log etcd://127.0.0.1:2379/plant telemetry
  timestone cluster create-log etcd://127.0.0.1:2379/plant flow retention_ms=7d
  timestone cluster create-log etcd://127.0.0.1:2379/plant state compact=true

Each shard has one partition of the log. The nodes make theirs within moments.
Settings as for `timestone configure`: retention_ms, retention_bytes (of each
partition), local_retention_ms, local_retention_bytes, segment_bytes,
segment_entries, segment_age_ms, compact, tombstone_ms, compression,
compression_level, compression_dictionary. Settings of [log] in the file of a
node do not apply. Each replica compresses and compacts its own files.
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
_DELETE = """\
Examples:
  timestone cluster delete-log etcd://127.0.0.1:2379/plant telemetry
  timestone cluster delete-log etcd://127.0.0.1:2379/plant telemetry --yes

Says what is in the log, asks, and deletes it in all shards, with its settings
and the positions of named readers; this cannot be undone. Nodes delete their
files within moments, and those that do not run when they start. A log created
under the same name later begins at offset 0. One that MQTT publishes go to is
made again at once, empty and with default settings. What is in a bucket stays
there.
"""
_STATUS = """\
Examples:
  timestone cluster status etcd://127.0.0.1:2379/plant
  timestone cluster status etcd://127.0.0.1:2379/plant --json | jq .shards

Exit codes: 0 every shard takes appends, or the cluster has no log; 1 a shard
has no leader, or fewer in-sync replicas run than it needs; 64 invalid
arguments; 74 etcd does not answer, or has no such cluster.
"""
_CONFIGURE_CLUSTER = """\
Examples:
  timestone cluster configure etcd://e1:2379/plant
  timestone cluster configure etcd://e1:2379/plant --replace-after 1h
  timestone cluster configure etcd://e1:2379/plant --no-balance

Without an option, the command prints what is set. Nodes apply a change within
moments. With --no-balance, replicas and leaders stay where they are until a
command moves them.
"""
_FINALIZE = """\
Examples:
  timestone cluster finalize etcd://127.0.0.1:2379/plant

After an upgrade of all nodes: until then they use nothing that the older
version does not know, so that nodes can go back to it. After it, an older
version cannot join. All nodes that hold replicas have to run. The command may
be repeated, and changes nothing where there is nothing newer.
"""
_APPEND = """\
Examples:
  echo hello | timestone cluster append etcd://127.0.0.1:2379/plant telemetry
  timestone cluster append etcd://127.0.0.1:2379/plant telemetry < lines.txt

Appends one record for each line of input through the leader of the shard, and
prints the offset of each once all in-sync replicas have it on their disks; at
ack level `written`, once they have written it. If the leader is lost, it looks
for the next one and appends again what was not acknowledged: such a record may
be in the log twice.
"""


_SETTINGS = click.argument("settings", metavar="[SETTING=VALUE]...", nargs=-1, help="Settings of the log.")


@click.group(cls=Group, epilog=EXAMPLES)
def command() -> None:
    """Make a cluster of nodes that hold the same logs, and look at it."""


@command.command(epilog=_INIT, exit_failed=EXIT_SYSTEM)
@connection
@click.option("--shards", type=int, default=1, help="Units of leadership; cannot change later.")
@click.option("--replicas", type=int, default=3, help="Nodes that have each shard.")
@click.option(
    "--topic-key",
    "topic_keys",
    multiple=True,
    metavar="FILTER",
    help="Where topics have the key that decides on their shard, as in devices/{key}/#; may be repeated.",
)
@click.option(
    "--ack",
    type=click.Choice(["synced", "written"]),
    default="synced",
    help="What replicas have done with a record that is acknowledged; cannot change later.",
)
def init(url: str, shards: int, replicas: int, **options: Any) -> None:
    """Make a cluster in etcd."""
    operations = cluster_module("operations")
    given = {name: options.pop(name) for name in ("topic_keys", "ack")}
    numbers = {"shards": shards, "replicas": replicas, **given}
    made = with_etcd(url, options, lambda etcd, keys: operations.make_cluster(etcd, keys, **numbers))
    print_text(
        f"cluster {made.id}: {format_count(made.shards, 'shard')}, {made.replicas} replicas, "
        f"{made.min_isr} in sync at least, ack {made.ack}"
    )


@command.command("create-log", epilog=_CREATE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@_SETTINGS
def create_log(url: str, log: str, settings: Sequence[str], **access: Any) -> None:
    """Make a log in all shards."""
    operations, given = cluster_module("operations"), given_settings(settings)
    is_new = with_etcd(url, access, lambda etcd, keys: operations.make_log(etcd, keys, log, given))
    print_text(f"log {log}" if is_new else f"log {log} is there already")


@command.command("configure-log", epilog=_CONFIGURE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@_SETTINGS
def configure_log(url: str, log: str, settings: Sequence[str], **access: Any) -> None:
    """Change settings of a log, in all shards."""
    operations, given = cluster_module("operations"), given_settings(settings)
    value = with_etcd(url, access, lambda etcd, keys: operations.configure_log(etcd, keys, log, given))
    words = [f"{name}={str(one).lower()}" for name, one in sorted(value.settings.items())]
    print_text(f"log {log}: {' '.join(words) or 'nothing is set'}")


@command.command("delete-log", epilog=_DELETE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def delete_log(url: str, log: str, yes: bool, as_json: bool, **access: Any) -> None:
    """Delete a log with all its records, in all shards."""
    operations, recovery = cluster_module("operations"), cluster_module("recovery")
    context = tls_context(access)
    found = with_etcd(url, access, lambda etcd, keys: recovery.log_contents(etcd, keys, log, context=context))
    count = sum(end - start for start, end in found.shards.values())
    shown = f"{format_count(count, 'offset')} in {format_count(len(found.shards), 'shard')}"
    if not yes:
        ask_to_delete(log, shown)
    with_etcd(url, access, lambda etcd, keys: operations.delete_log(etcd, keys, log, found.created))
    if as_json:
        shards = [
            {"shard": shard, "start_offset": start, "end_offset": end}
            for shard, (start, end) in found.shards.items()
        ]
        print_json({"log": log, "shards": shards})
    else:
        print_text(f"log {log} is deleted: {shown}")


@command.command(epilog=_CONFIGURE_CLUSTER, exit_failed=EXIT_SYSTEM)
@connection
@click.option("--balance/--no-balance", default=None, help="Place replicas and leaders again by themselves.")
@click.option(
    "--replace-after", type=duration_ms("s"), help="How long a node may be away and keep its place."
)
@click.option("--leader-pause", type=duration_ms("s"), help="Between two hand-overs to preferred leaders.")
@click.option(
    "--affinity",
    type=duration_ms("s"),
    help="How long most clients of a shard have to come in through a node before it leads.",
)
def configure(url: str, balance: bool | None, **access: Any) -> None:
    """Change how replicas and leaders are placed."""
    operations = cluster_module("operations")
    times = {f"{name}_ms": access.pop(name) for name in ("replace_after", "leader_pause", "affinity")}
    given = {"balance": balance, **times}
    settings = {name: value for name, value in given.items() if value is not None}
    found = with_etcd(url, access, lambda etcd, keys: operations.configure_cluster(etcd, keys, settings))
    print_text(
        f"balance {'on' if found.balance else 'off'}, a node is replaced after "
        f"{format_duration(found.replace_after_ms)}, {format_duration(found.leader_pause_ms)} between hand-overs to "
        f"preferred leaders, which are near their clients after {format_duration(found.affinity_ms)}"
    )


@command.command(epilog=_FINALIZE, exit_failed=EXIT_SYSTEM)
@connection
def finalize(url: str, **access: Any) -> None:
    """Let the nodes use all of the protocol that all speak."""
    operations = cluster_module("operations")
    found = with_etcd(url, access, operations.finalize_cluster)
    print_text(f"the cluster is at level {found.level} of the protocol")


@command.command(epilog=_STATUS, exit_failed=EXIT_SYSTEM)
@connection
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(url: str, as_json: bool, **access: Any) -> int:
    """Show nodes, shards and logs as etcd has them."""
    operations = cluster_module("operations")
    found: ClusterStatus = with_etcd(url, access, operations.cluster_status)
    if as_json:
        print_json(
            {
                "cluster": {key: one for key, one in asdict(found.cluster).items() if key != "others"},
                "logs": found.logs,
                "nodes": [one._asdict() for one in found.nodes],
                "away": [one._asdict() for one in found.away],
                "shards": [
                    {**one._asdict(), "unclean": [asdict(each) for each in one.unclean]}
                    for one in found.shards
                ],
            }
        )
    else:
        print_tables(lambda console: _print_status(console, found))
    return 0 if not found.logs or all(one.is_led and not one.is_short for one in found.shards) else 1


def _print_status(console: "Console", found: "ClusterStatus") -> None:
    names = {one.id: one.name for one in found.nodes} | {one.id: f"{one.name} (gone)" for one in found.away}
    logs = ", ".join(found.logs) or "none"
    console.print(
        f"cluster {found.cluster.id}: {format_count(found.cluster.shards, 'shard')}, "
        f"{found.cluster.replicas} replicas, {found.cluster.min_isr} in sync at least, ack {found.cluster.ack}; "
        f"level {found.cluster.level} of the protocol, balance {'on' if found.cluster.balance else 'off'}; "
        f"logs: {logs}",
        soft_wrap=True,
    )
    nodes, shards = simple_table(), simple_table()
    for heading in ("node", "name", "address", "zone"):
        nodes.add_column(heading)
    for heading in ("weight", "shards", "leads", "observes"):
        nodes.add_column(heading, justify="right")
    for one in (*found.nodes, *found.away):
        states = [
            ("; draining", one.is_draining),
            ("; leaving", one.is_leaving),
            ("; full", one.is_full),
            ("; stopping", one.is_stopping),
            ("; behind", one.is_behind),
            ("; gone", not one.run),
        ]
        words = one.address + "".join(word for word, holds in states if holds)
        count = sum(one.id in (*shard.replicas, *shard.adding) for shard in found.shards)
        leads = sum(one.id == shard.leader for shard in found.shards)
        observed = found.cluster.shards - count if one.observes and one.run else 0
        numbers = map(str, (one.weight, count, leads, observed))
        nodes.add_row(one.id, one.name, words, one.zone, *numbers)
    for heading in ("shard", "leader", "in sync", "replicas"):
        shards.add_column(heading)
    shards.add_column("generation", justify="right")
    for shard in found.shards:
        leader = "none" if shard.leader is None else names.get(shard.leader, f"{shard.leader} (gone)")
        leader = "record is gone" if shard.is_lost else leader
        in_sync = ", ".join(sorted(names.get(node, node) for node in shard.in_sync))
        replicas, adding = (
            ", ".join(names.get(node, node) for node in group) for group in (shard.replicas, shard.adding)
        )
        replicas += f"; copying: {adding}" if adding else ""
        replicas += "; placed by command" if shard.is_pinned else ""
        shards.add_row(
            str(shard.number), leader, in_sync or "none", replicas or "none", str(shard.generation)
        )
    for table in (nodes, shards):
        console.print()
        console.print(table)
    _print_notes(console, found)


def _print_notes(console: "Console", found: "ClusterStatus") -> None:
    """Say what is unusual, and what it waits for."""
    places = found.cluster.shards * found.cluster.replicas
    if (idle := len(found.nodes) - places) > 0:
        hold = "holds" if idle == 1 else "hold"
        console.print(
            f"{len(found.nodes)} nodes for {places} places of replicas: {idle} {hold} nothing", soft_wrap=True
        )
    if new := sum(not one.replicas and not one.is_lost for one in found.shards):
        running = sum(not one.is_leaving for one in found.nodes)
        console.print(
            f"{format_count(new, 'shard')} without replicas: placed once {found.cluster.replicas} nodes run, "
            f"now {running}",
            soft_wrap=True,
        )
    for one in found.nodes:
        if one.alarm:
            console.print(f"node {one.name}: a replica stays out: {one.alarm}", soft_wrap=True)
    for shard in found.shards:
        if shard.is_lost:
            mended = "see `timestone cluster repair-metadata`, while the nodes run"
            console.print(f"shard {shard.number}: its record is gone from etcd: {mended}", soft_wrap=True)
        if shard.is_short:
            needed = f"fewer than {found.cluster.min_isr} of its in-sync replicas run"
            console.print(f"shard {shard.number}: appends wait: {needed}", soft_wrap=True)
        _print_unclean(console, shard)


def _print_unclean(console: "Console", shard: "ShardStatus") -> None:
    for lost in shard.unclean:
        end = f"new ones begin at {lost.resumes}" if lost.resumes else "their offsets are given again"
        console.print(
            f"shard {shard.number}: generation {lost.generation} began by command: records of {lost.shown_log} from "
            f"offset {lost.offset} on may have been lost, and {end}",
            soft_wrap=True,
        )


@command.command(epilog=_APPEND, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("log", metavar="LOG", help="Name of the log.")
@click.option("--topic", help="Topic of the records.")
@click.option("--shard", type=int, default=0, help="Shard to append to.")
@click.option("--timeout-s", type=SECONDS, default=30.0, help="Time for each record.")
def append(url: str, log: str, topic: str | None, shard: int, timeout_s: float, **access: Any) -> None:
    """Append one record for each line of input."""
    client_module = cluster_module("node.client")

    async def lines(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        client = client_module.ClusterClient(etcd, keys, context=tls_context(access))
        topics = [] if topic is None else [topic]
        try:
            while line := await asyncio.to_thread(sys.stdin.buffer.readline):
                payload = line.removesuffix(b"\n")
                print(
                    await client.append_again(log, [payload], topics=topics, shard=shard, timeout_s=timeout_s)
                )
        except (TimeoutError, cluster_module("errors").AppendRefused) as error:
            raise CommandError(f"{error}") from None
        finally:
            await client.close()

    with_etcd(url, access, lines)


for _one in cluster_nodes.COMMANDS:
    command.add_command(_one)
