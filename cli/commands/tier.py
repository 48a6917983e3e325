"""`timestone tier`: what an operator does with the history that a store keeps in a bucket.

The commands, their errors and their output. `timestone_tiering` does the work.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from timestone.errors import NotAStore
from timestone.view import StoreView, view_store
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import log_histories
from timestone_tiering.operations.claim import claim_prefix
from timestone_tiering.operations.collection import collect_unused
from timestone_tiering.operations.download import download_logs
from timestone_tiering.operations.forgetting import find_forgettable
from timestone_tiering.operations.forgetting import forget as forget_history
from timestone_tiering.operations.status import BucketStatus, bucket_status, urls_of_store
from timestone_tiering.operations.verification import LogVerification, verify_log

from ..errors import EXIT_SYSTEM, UsageError
from ..group import Group
from ..input.bucket_options import bucket_at, bucket_options
from ..input.parameters import DIRECTORY, STORE_OR_BUCKET, duration_ms
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text
from ..output.tier_table import print_status, print_verification
from ..units import format_bytes, format_count, format_timestamp

EXIT_CORRUPTION = 3
"""As of `inspect`."""

EXAMPLES = """\
Examples:
  timestone tier status s3://bucket/plant    what the bucket has of each log
  timestone tier verify s3://bucket/plant    read and check every byte
  timestone restore s3://bucket/plant data   a new store of it
  timestone tier COMMAND --help              options and examples of a command

URL: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or
file:///FOLDER. Credentials come from where the tools of the vendor look for
them; see docs/tiering.md.
"""
_STATUS = """\
Examples:
  timestone tier status s3://bucket/plant
  timestone tier status /var/lib/timestone   also what waits to be uploaded
  timestone tier status s3://bucket/plant --json | jq '.logs[].end_offset'

With the directory of a store: each bucket that the store has uploaded to, and
the backlog. A server may run on it.
"""
_VERIFY = """\
Examples:
  timestone tier verify s3://bucket/plant
  timestone tier verify s3://bucket/plant --log telemetry --json

Reads all that the newest manifests name, which costs requests and traffic. For
a damaged segment it says which offsets cannot be read. Nothing is repaired.

Exit codes: 0 everything is as it was uploaded; 3 objects are damaged or
missing; 64 invalid arguments, or no such log; 74 the bucket or the system
failed.
"""
_COLLECT = """\
Examples:
  timestone tier collect s3://bucket/plant            what would be deleted
  timestone tier collect s3://bucket/plant --delete   delete it

Deletes what killed uploads have left, what retention has dropped, and replaced
manifests. Kept is what any manifest names that was the newest within the delay:
a reader may still use it. A running server disturbs nothing and is not
disturbed.
"""
_DOWNLOAD = """\
Examples:
  timestone tier download s3://bucket/plant history
  timestone tier download s3://bucket/plant history --log telemetry
  timestone read history telemetry

Makes a folder to read from. Run again, it fetches only what is new. For a store
to append to, use `timestone restore`.
"""
_CLAIM = """\
Examples:
  timestone tier claim s3://bucket/plant data

For a restored store, or for a copy, when the store that uploaded before is gone
for good. The next `serve --tier` on DIR then continues the uploads. If the
other store still runs, it stops to upload once this one begins.
"""
_FORGET = """\
Examples:
  timestone tier forget data telemetry --dry-run   what would be forgotten
  timestone tier forget data telemetry
  timestone tier forget s3://bucket/plant 5d0c81f2a9e3b647
  timestone tier collect s3://bucket/plant --delete   two days later

For a log that was deleted in its store. LOG is its name, or its id where logs
of one name were deleted and made again. From now on no reader finds it; one
that has planned a read ends it. `collect --delete` deletes its objects once the
delay is over. With DIR, logs that the store still has are refused. Give the URL
only when the store is gone.
"""
_url = click.argument("url", metavar="URL", help="The bucket.")
_logs = click.option(
    "--log",
    "logs",
    metavar="LOG",
    multiple=True,
    help="Only this log, or one partition such as telemetry-0; may be repeated.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(cls=Group, epilog=EXAMPLES)
def command() -> None:
    """Look after the history of a store in object storage."""


@command.command(epilog=_STATUS)
@click.argument(
    "where", metavar="URL|DIR", type=STORE_OR_BUCKET, help="The bucket, or the store whose buckets are meant."
)
@_json
@bucket_options
def status(where: Path | str, as_json: bool, endpoint: str | None, region: str | None) -> None:
    """Show what a bucket has of each log, and who uploads."""
    with _usage_errors():
        found = _statuses(where, endpoint, region)
    if as_json:
        print_json({"path": str(where), "buckets": [one.to_json() for one in found]})
        return
    for number, one in enumerate(found):
        if number:
            print()
        print_status(one)


def _statuses(where: Path | str, endpoint: str | None, region: str | None) -> list[BucketStatus]:
    with _buckets(where, endpoint, region) as (store, buckets):
        return [bucket_status(bucket, store) for bucket in buckets]


@contextmanager
def _buckets(
    where: Path | str, endpoint: str | None, region: str | None
) -> Iterator[tuple[StoreView | None, list[Bucket]]]:
    """Yield the bucket of a URL; or a view of a store, and the buckets that it has uploaded to."""
    if isinstance(where, str):
        yield None, [bucket_at(where, endpoint, region)]
        return
    with closing(view_store(where)) as store:
        urls = urls_of_store(store)
        if not urls:
            raise UsageError(f"{where}: the store has not uploaded to a bucket; start it with --tier URL")
        yield store, [bucket_at(url, endpoint, region) for url in urls]


@command.command(epilog=_VERIFY, exit_failed=EXIT_SYSTEM)
@_url
@_logs
@_json
@bucket_options
def verify(url: str, logs: tuple[str, ...], as_json: bool, endpoint: str | None, region: str | None) -> int:
    """Read every byte of a bucket and compare it with its checksums."""
    bucket = bucket_at(url, endpoint, region)
    done: list[LogVerification] = []
    with _usage_errors(), ProgressLine() as progress:
        for history in log_histories(bucket, logs):
            done.append(verify_log(history, progress.bytes))
            progress.clear()
            if not as_json:
                print_verification(done[-1])
    damaged = sum(len(one.damage) for one in done)
    if as_json:
        print_json({"url": bucket.url, "logs": [one.to_json() for one in done]})
    elif damaged:
        print(f"damaged: {format_count(damaged, 'finding')}")
    else:
        print(f"clean: {format_count(sum(one.object_count for one in done), 'object')} verified")
    return EXIT_CORRUPTION if damaged else 0


@command.command(epilog=_COLLECT)
@_url
@click.option("--delete", is_flag=True, help="Delete them; without it, they are only listed.")
@click.option(
    "--older-than",
    "older_than_ms",
    metavar="DURATION",
    type=duration_ms("h"),
    default="48h",
    help="The delay: objects younger than this are kept.",
)
@_json
@bucket_options
def collect(
    url: str, delete: bool, older_than_ms: int, as_json: bool, endpoint: str | None, region: str | None
) -> int:
    """Delete objects that no manifest needs any more."""
    bucket = bucket_at(url, endpoint, region)
    with _usage_errors(), ProgressLine() as progress:
        found = collect_unused(
            bucket,
            older_than_us=older_than_ms * 1000,
            delete=delete,
            progress=lambda log: progress.show(f"{log}: looking for unused objects"),
        )
    broken = [one for one in found if one.error is not None]
    if as_json:
        logs = [
            {
                "log": one.log,
                "partition": one.partition,
                "id": one.id,
                "unused": [
                    {"object": facts.name, "bytes": facts.size_bytes, "modified_us": facts.modified_us}
                    for facts in one.unused
                ],
                "error": one.error,
            }
            for one in found
        ]
        print_json({"url": bucket.url, "deleted": delete, "logs": logs})
        return 1 if broken else 0
    for one in found:
        for facts in one.unused:
            print(facts.name)
    for one in broken:
        print_text(f"{one.log}-{one.partition}: nothing is deleted: {one.error}")
    count = format_count(sum(len(one.unused) for one in found), "object")
    size = format_bytes(sum(one.size_bytes for one in found))
    print(f"{count}, {size}, deleted" if delete else f"{count}, {size}, can be deleted with --delete")
    return 1 if broken else 0


@command.command(epilog=_FORGET)
@click.argument(
    "where", metavar="URL|DIR", type=STORE_OR_BUCKET, help="The bucket, or the store whose bucket is meant."
)
@click.argument("log", metavar="LOG", help="Name or id of the log.")
@click.option("--dry-run", is_flag=True, help="Only show what would be forgotten.")
@_json
@bucket_options
def forget(
    where: Path | str, log: str, dry_run: bool, as_json: bool, endpoint: str | None, region: str | None
) -> None:
    """Give up the history of a deleted log."""
    with _usage_errors(), _buckets(where, endpoint, region) as (store, buckets):
        found = find_forgettable(buckets, log, store)
        if not dry_run:
            forget_history(found)
    manifest = found.manifest
    if as_json:
        place = manifest.place
        print_json(
            {
                "url": found.objects.bucket.url,
                "log": place.log,
                "partition": place.partition,
                "id": f"{place.log_id:016x}",
                "start_offset": manifest.start,
                "end_offset": manifest.end,
                "stored_bytes": manifest.size_bytes,
                "forgotten": not dry_run,
            }
        )
        return
    what = f"{found.folder}: offsets [{manifest.start}, {manifest.end}), {format_bytes(manifest.size_bytes)}"
    print_text(f"{what}, would be forgotten" if dry_run else f"{what}, forgotten")
    if not dry_run:
        print_text(f"after the delay: timestone tier collect {found.objects.bucket.url} --delete")


@command.command(epilog=_DOWNLOAD)
@_url
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@_logs
@_json
@bucket_options
def download(
    url: str,
    directory: Path,
    logs: tuple[str, ...],
    as_json: bool,
    endpoint: str | None,
    region: str | None,
) -> None:
    """Fetch segments into a folder that can be viewed like a store."""
    bucket = bucket_at(url, endpoint, region)
    with _usage_errors(), ProgressLine() as progress:
        done = download_logs(bucket, directory, logs=logs, progress=progress.bytes)
    if as_json:
        print_json({"url": bucket.url, "path": str(directory), "logs": [one._asdict() for one in done]})
        return
    for one in done:
        fetched = "nothing new" if not one.fetched_segments else f"{one.fetched_segments:,} fetched now"
        print(
            f"{one.log}-{one.partition}: offsets [{one.start_offset}, {one.end_offset}), "
            f"{format_count(one.segment_count, 'segment')}, {fetched}"
        )
    print(f"complete: {directory}")


@command.command(epilog=_CLAIM)
@_url
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@bucket_options
def claim(url: str, directory: Path, endpoint: str | None, region: str | None) -> None:
    """Let the store in DIR continue the uploads of another one."""
    bucket = bucket_at(url, endpoint, region)
    with _usage_errors():
        before = claim_prefix(bucket, directory)
    when = "" if before.claimed_us is None else f" since {format_timestamp(before.claimed_us)}"
    who = "" if before.host is None else f", host {before.host}, pid {before.pid}"
    print_text(
        f"{directory} continues the uploads to {bucket.url} (generation {before.generation}{who}{when})"
    )


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Raise what is wrong with the command line as UsageError."""
    try:
        yield
    except (NoHistory, NotAStore) as error:
        raise UsageError(str(error)) from None
