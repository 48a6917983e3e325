"""Options that say where a bucket is, under the same names as those of `serve`."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from timestone.disk.files import Files
from timestone.repair.inspection import NotedBucket
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.bucket_url import check_endpoint, open_bucket
from timestone_tiering.errors import TieringError

from ..errors import UsageError
from ..group import Option

_HEADING = "Bucket"
_LOGGER = logging.getLogger("timestone.cli")


def bucket_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--endpoint` and `--region`."""
    for name, what in (
        ("region", "Region of the bucket, instead of that of the environment."),
        ("endpoint", "Address of a server with the S3 interface, instead of that of the environment."),
    ):
        function = click.option(
            f"--{name}",
            metavar="URL" if name == "endpoint" else "TEXT",
            envvar=f"TIMESTONE_TIER_{name.upper()}",
            cls=Option,
            heading=_HEADING,
            help=what,
        )(function)
    return function


def noted_bucket(store: Path) -> NotedBucket | None:
    """Return what a store has noted about its bucket, for `inspect_store`. If that cannot be used, the store counts as
    one without a bucket, with a warning."""
    if (store / "tier").exists():
        # Not at the top: a store without a bucket is inspected without all of this.
        from timestone_tiering.reading import local_view  # noqa: PLC0415

        try:
            return local_view.noted_bucket(store, Files())
        except TieringError as error:
            _LOGGER.warning("%s: the bucket of the store is not looked at: %s", store, error)
    return None


def bucket_at(url: str, endpoint: str | None, region: str | None) -> Bucket:
    """Return the bucket of a URL. Raises UsageError for an invalid URL or option."""
    try:
        if endpoint is not None:
            check_endpoint(endpoint)
        return open_bucket(url, endpoint=endpoint, region=region)
    except TieringError as error:
        raise UsageError(str(error)) from None
