"""The one Spark session, and the one S3 server."""

from collections.abc import Iterator

import pytest

from tests.support.s3_server import S3Server, s3_server
from tests.support.spark import spark

__all__ = ["s3", "spark"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests; each takes a prefix of its own."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
