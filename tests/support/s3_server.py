"""The S3 server of the tests: `timestone_bench.tier.s3_server` with their users."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from timestone_bench.tier import s3_server as servers
from timestone_bench.tier.s3_server import Identity, S3Server

__all__ = ["BUCKET", "KEY", "OTHER_KEY", "OTHER_SECRET", "SECRET", "Identity", "S3Server", "s3_server"]

KEY, SECRET = "test-key", "test-secret"
OTHER_KEY, OTHER_SECRET = "other-key", "other-secret"
BUCKET = "test-bucket"
_USERS = (Identity("test", {KEY: SECRET, OTHER_KEY: OTHER_SECRET}),)


@contextlib.contextmanager
def s3_server(folder: Path, *others: Identity, bucket: str = BUCKET) -> Iterator[S3Server]:
    """A server for the block. others: users beside the one with all rights."""
    with servers.s3_server(folder, (*_USERS, *others), bucket=bucket) as server:
        yield server
