"""`timestone tier`: what an operator does with the history that a store keeps in a bucket.

The commands, their errors and their output. `timestone_tiering` does the work.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from timestone.errors import NotAStore
from timestone.view import view_store
from timestone_tiering.buckets.bucket_url import is_url
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import log_histories
from timestone_tiering.operations.claim import claim_prefix
from timestone_tiering.operations.collection import collect_unused
from timestone_tiering.operations.download import download_logs
from timestone_tiering.operations.status import BucketStatus, bucket_status, urls_of_store
from timestone_tiering.operations.verification import LogVerification, verify_log

from ..errors import EXIT_SYSTEM, UsageError
from ..group import Group
from ..input.bucket_options import bucket_at, bucket_options
from ..input.parameters import DIRECTORY, duration_ms
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
@click.argument("where", metavar="URL|DIR", help="The bucket, or the store whose buckets are meant.")
@_json
@bucket_options
def status(where: str, as_json: bool, endpoint: str | None, region: str | None) -> None:
    """Show what a bucket has of each log, and who uploads."""
    with _usage_errors():
        found = _statuses(where, endpoint, region)
    if as_json:
        print_json({"path": where, "buckets": [one.to_json() for one in found]})
        return
    for number, one in enumerate(found):
        if number:
            print()
        print_status(one)


def _statuses(where: str, endpoint: str | None, region: str | None) -> list[BucketStatus]:
    if is_url(where):
        return [bucket_status(bucket_at(where, endpoint, region))]
    with closing(view_store(where)) as store:
        urls = urls_of_store(store)
        if not urls:
            raise UsageError(f"{where}: the store has not uploaded to a bucket; start it with --tier URL")
        return [bucket_status(bucket_at(url, endpoint, region), store) for url in urls]


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
