"""`timestone restore`: a store on this machine made of what a bucket has.

Renders what `timestone_tiering` did; decides nothing itself. The bucket is only read.
"""

from pathlib import Path

import click

from timestone_tiering.errors import NoHistory
from timestone_tiering.operations.restore import restore_store

from ..errors import UsageError
from ..group import Command
from ..input.bucket_options import bucket_at, bucket_options
from ..input.parameters import DIRECTORY, Parsed
from ..input.positions import parse_time_us
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text
from ..units import format_bytes, format_count

EXAMPLES = """\
Examples:
  timestone restore s3://bucket/plant data
  timestone restore s3://bucket/plant data --until 2026-07-01T08:00:00Z
  timestone restore s3://bucket/plant data --log telemetry
  timestone inspect data --deep              verify every record of it
  timestone tier claim s3://bucket/plant data && \\
  timestone serve --data data --tier s3://bucket/plant    continue the uploads

DIR gets every record up to the newest manifest of each log; what the lost
server had not uploaded yet is not in it, and neither are sessions, retained
messages and named readers. DIR appears when it is complete; until then it is
called DIR.partial, and the same command continues where a killed one was.

The restored store does not upload to the bucket before `timestone tier claim`,
because the other server may still run.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument(
    "url", metavar="URL", help="The bucket: s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER."
)
@click.argument(
    "directory", metavar="DIR", type=DIRECTORY, help="The new store; must not exist, or be empty."
)
@click.option(
    "--until",
    "until_us",
    metavar="TIME",
    type=Parsed("time", parse_time_us),
    help="Only records that were appended before this RFC 3339 time.",
)
@click.option(
    "--log",
    "logs",
    metavar="LOG",
    multiple=True,
    help="Only this log, or one partition such as telemetry-0; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bucket_options
def command(
    url: str,
    directory: Path,
    until_us: int | None,
    logs: tuple[str, ...],
    as_json: bool,
    endpoint: str | None,
    region: str | None,
) -> None:
    """Make a store of what a bucket has, on a new machine."""
    bucket = bucket_at(url, endpoint, region)
    try:
        with ProgressLine() as progress:
            done = restore_store(
                bucket,
                directory,
                until_us=until_us,
                logs=logs,
                progress=progress.bytes,
            )
    except NoHistory as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json({"url": bucket.url, "path": str(directory), "logs": [one._asdict() for one in done]})
        return
    for one in done:
        print(
            f"{one.log}-{one.partition}: offsets [{one.start_offset}, {one.end_offset}), "
            f"{format_count(one.segment_count, 'segment')}, {format_bytes(one.stored_bytes)}"
        )
    print(f"complete: {directory}")
    print_text(f"to upload to the bucket from now on: timestone tier claim {bucket.url} {directory}")
