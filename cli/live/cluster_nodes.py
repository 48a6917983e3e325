"""`timestone cluster`: what is done to nodes and to the replicas that they hold: move, drain, remove, recover,
restore.

The commands, their errors and their output. `timestone_cluster` does the work.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_SYSTEM, CommandError, UsageError
from ..group import Command
from ..input.bucket_options import bucket_at, bucket_options
from ..input.parameters import DIRECTORY, SECONDS
from ..output.progress import ProgressLine
from ..output.tables import print_tables, simple_table
from ..output.text import print_text
from ..units import format_count
from .cluster_access import cluster_module, connection, tls_context, with_etcd

if TYPE_CHECKING:
    from timestone_cluster.etcd.client import EtcdClient
    from timestone_cluster.etcd.keys import ClusterKeys
    from timestone_cluster.recovery import Plan

_REPLACE = """\
Examples:
  timestone cluster replace etcd://127.0.0.1:2379/plant b d
  timestone cluster replace etcd://127.0.0.1:2379/plant 5f0e6a1b2c3d4e5f d

NEW copies every shard of OLD, one after another, and takes its place once it is
in sync. OLD may run, or be lost: then it is named by its id, which `cluster
status` shows. If it runs and leads a shard, it hands over to NEW, without an
append of unknown outcome. The files of OLD stay where they are. If NEW leaves,
or is not in sync in time, the shard stays as it is; the command may be
repeated.
"""
_MOVE = """\
Examples:
  timestone cluster move etcd://127.0.0.1:2379/plant 3 --from a --to d
  timestone cluster move etcd://127.0.0.1:2379/plant 3 --undo

The node after --to copies the shard, and takes the place of the one after
--from once it is in sync, which may run or be lost. The shard stays where the
command has put it while its nodes are there; --undo has it placed by the nodes
again.
"""
_REMOVE = """\
Examples:
  timestone cluster remove etcd://127.0.0.1:2379/plant a
  timestone cluster remove etcd://127.0.0.1:2379/plant a --undo   to undo that

For a node that retires, or is lost for good: its replicas are placed on the
other nodes, two shards at a time, and it leads and holds nothing any more. The
command ends when that is done; then stop the node, if it runs. Each shard has
its replicas at all times. For a node that is stopped for a while, see `drain`.
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
that has the most of those that are not damaged, or NODE, leads, and serves once
another one has caught up.
Acknowledged records that it lacks are lost; `cluster status` shows that for
good. Their offsets are not given again where a node answers that was in sync,
as after a power loss at ack level `written`; otherwise they are.
"""
_RESTORE = """\
Examples:
  timestone cluster restore etcd://127.0.0.1:2379/plant s3://bucket/plant a
  timestone serve --cluster etcd://127.0.0.1:2379/plant --cluster-name a \\
    --data a --tier s3://bucket/plant

No node may run. What is in etcd of the cluster is used, and made again from the
bucket where etcd is lost, too. DIR gets every log as far as it was uploaded;
offsets stay as they were, and uploads continue in the same place. What was not
uploaded yet is lost, its offsets are given again, and `cluster status` shows
that for good. State of MQTT and Flight and compacted logs are not in a bucket.
Then start the node of DIR, and the others with empty folders: they copy it, and
the cluster serves once enough of them have.
"""
_REPAIR = """\
Examples:
  timestone cluster repair-metadata etcd://127.0.0.1:2379/plant
  timestone cluster repair-metadata etcd://127.0.0.1:2379/plant --yes

For an etcd that was restored from an old backup, or has lost the record of a
shard. Start all nodes again first. Without --yes the command shows what it
would do. A repaired shard begins 1,000 generations above the highest one that a
node knows, led by the replica that has all that the others have: nothing
acknowledged is lost. For that, at least two replicas of three have to answer
that are not damaged.
"""


@click.command(cls=Command, epilog=_REPLACE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("old", metavar="OLD", help="Node that leaves: its id, or its name if it runs.")
@click.argument("new", metavar="NEW", help="Node that takes its place: its id or name.")
@click.option("--timeout-s", type=SECONDS, default=3600.0, help="Time for each shard.")
def replace(url: str, old: str, new: str, timeout_s: float, **access: Any) -> None:
    """Put a node in the place of another one."""
    _replace(url, old, new, None, timeout_s, access)


@click.command(cls=Command, epilog=_MOVE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("shard", metavar="SHARD", type=int, help="Number of the shard.")
@click.option("--from", "old", metavar="NODE", help="Node that gives its replica: its id or name.")
@click.option("--to", "new", metavar="NODE", help="Node that takes it: its id or name.")
@click.option("--undo", is_flag=True, help="Have the shard placed by the nodes again.")
@click.option("--timeout-s", type=SECONDS, default=3600.0, help="Time for the shard.")
def move(
    url: str, shard: int, old: str | None, new: str | None, undo: bool, timeout_s: float, **access: Any
) -> None:
    """Move the replica of one shard to another node."""
    if undo != (old is None) or undo != (new is None):
        raise UsageError("expected --from and --to, or --undo")
    if old is not None and new is not None:
        _replace(url, old, new, shard, timeout_s, access)
        return
    moving = cluster_module("moving")
    with_etcd(url, access, lambda etcd, keys: moving.unpin_shard(etcd, keys, shard))
    print_text(f"shard {shard} is placed by the nodes again")


def _replace(
    url: str, old: str, new: str, shard: int | None, timeout_s: float, access: dict[str, Any]
) -> None:
    moving = cluster_module("moving")
    try:
        with_etcd(
            url,
            access,
            lambda etcd, keys: moving.replace_node(
                etcd, keys, old, new, only=shard, timeout_s=timeout_s, progress=_progress
            ),
        )
    except TimeoutError as error:
        raise CommandError(f"{new} has not taken the place within {timeout_s:g} s: {error}") from None


def _progress(line: str) -> None:
    print(line, flush=True)


def _give_away(
    url: str, access: dict[str, Any], work: Any, node: str, timeout_s: float, refusal: str
) -> None:
    """Have a node give away what it leads or holds, and wait for it."""
    is_waiting = False

    def progress(line: str) -> None:
        nonlocal is_waiting
        is_waiting = True
        _progress(line)

    try:
        with_etcd(
            url,
            access,
            lambda etcd, keys: work(etcd, keys, node, timeout_s=timeout_s, progress=progress),
        )
    except TimeoutError as error:
        raise CommandError(f"{node} {refusal}, after {timeout_s:g} s: {error}") from None
    except KeyboardInterrupt:
        if is_waiting:
            print(f"{node} {refusal}; --undo takes it back", file=sys.stderr)
        raise


@click.command(cls=Command, epilog=_DRAIN, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("node", metavar="NODE", help="Id or name of the node.")
@click.option("--undo", is_flag=True, help="Let the node lead again.")
@click.option("--timeout-s", type=SECONDS, default=60.0, help="Time until the node may be stopped.")
def drain(url: str, node: str, undo: bool, timeout_s: float, **access: Any) -> None:
    """Have a node give away what it leads, before a stop."""
    moving = cluster_module("moving")
    if undo:
        with_etcd(url, access, lambda etcd, keys: moving.undrain_node(etcd, keys, node))
        print_text(f"{node} may lead again")
        return
    refusal = "is drained still, and may not be stopped yet"
    _give_away(url, access, moving.drain_node, node, timeout_s, refusal)


@click.command(cls=Command, epilog=_REMOVE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument("node", metavar="NODE", help="Id or name of the node.")
@click.option("--undo", is_flag=True, help="Let the node hold replicas again.")
@click.option("--timeout-s", type=SECONDS, default=3600.0, help="Time until the node holds nothing.")
def remove(url: str, node: str, undo: bool, timeout_s: float, **access: Any) -> None:
    """Have all replicas of a node placed elsewhere, for good."""
    moving = cluster_module("moving")
    if undo:
        with_etcd(url, access, lambda etcd, keys: moving.unremove_node(etcd, keys, node))
        print_text(f"{node} may hold replicas again")
        return
    refusal = "is leaving still, and holds replicas"
    _give_away(url, access, moving.remove_node, node, timeout_s, refusal)


@click.command(cls=Command, epilog=_RECOVER, exit_failed=EXIT_SYSTEM)
@connection
@click.option("--shard", type=int, required=True, help="Number of the shard.")
@click.option(
    "--node",
    help="Id or name of the node that is to lead.  [default: the one with the most that is not damaged]",
)
@click.option("--yes", is_flag=True, help="Do it.")
def recover(url: str, shard: int, node: str | None, yes: bool, **access: Any) -> None:
    """Have a replica lead that may lack acknowledged records.

    For a shard whose other replicas are all lost."""
    recovery = cluster_module("recovery")

    async def run(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        plan = await recovery.plan_recovery(etcd, keys, shard, node=node, context=tls_context(access))
        _print_reports([plan])
        for other in plan.reports:
            if not plan.chosen.has(other):
                damaged = ", but is damaged" * (not other.is_whole)
                print(f"shard {shard}: {other.name} has more than {plan.chosen.name}{damaged}")
        for one in plan.record.unclean[-len(plan.chosen.logs) :]:
            end = f"; new ones begin at {one.resumes}" if one.resumes else ""
            print(f"shard {shard}: records of {one.shown_log} from offset {one.offset} on are given up{end}")
        await _apply(etcd, keys, [plan], yes)

    with_etcd(url, access, run)


@click.command(cls=Command, epilog=_RESTORE, exit_failed=EXIT_SYSTEM)
@connection
@click.argument(
    "bucket",
    metavar="BUCKET",
    help="What the nodes uploaded to: s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER.",
)
@click.argument(
    "directory",
    metavar="DIR",
    type=DIRECTORY,
    help="The folder of the first node; must not exist, or be empty.",
)
@bucket_options
def restore(
    url: str, bucket: str, directory: Path, endpoint: str | None, region: str | None, **access: Any
) -> None:
    """Make a cluster that has lost all disks from its bucket."""
    recovery, source = cluster_module("recovery"), bucket_at(bucket, endpoint, region)

    async def run(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        with ProgressLine() as progress:
            done = await recovery.restore_cluster(etcd, keys, source, directory, progress.bytes)
        for one in done.logs:
            print(f"{one.log}-{one.partition}: offsets [{one.start_offset}, {one.end_offset})")
        print(
            f"cluster {done.value.id}: {format_count(done.value.shards, 'shard')}, generation {done.generation}"
        )
        print(f"complete: {directory}, of node {done.node}; start it, and the others with empty folders")

    with_etcd(url, access, run)


@click.command("repair-metadata", cls=Command, epilog=_REPAIR, exit_failed=EXIT_SYSTEM)
@connection
@click.option("--yes", is_flag=True, help="Do it.")
def repair_metadata(url: str, yes: bool, **access: Any) -> None:
    """Make records of shards in etcd again, from the nodes."""
    recovery = cluster_module("recovery")

    async def run(etcd: "EtcdClient", keys: "ClusterKeys") -> None:
        plans, refused = await recovery.plan_repair(etcd, keys, context=tls_context(access))
        _print_reports(plans)
        await _apply(etcd, keys, plans, yes)
        if refused:
            raise CommandError("; ".join(refused))
        if not plans:
            print("nothing to repair")

    with_etcd(url, access, run)


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


COMMANDS = (replace, move, drain, remove, recover, restore, repair_metadata)
