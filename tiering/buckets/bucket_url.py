"""Which bucket a URL means."""

import importlib
from pathlib import Path
from urllib.parse import unquote, urlsplit

from timestone.address import check_host

from ..errors import TieringError
from .bucket import Bucket
from .folder_bucket import FolderBucket

SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss"})
"""Those of `object_storage`, which is imported when one is used: a folder needs no client of object stores."""


def is_url(text: str) -> bool:
    """Return whether a text is a URL, valid or not, rather than the path of a store."""
    return "://" in text


def check_url(url: str) -> None:
    """Raise TieringError for a URL that no bucket can have."""
    parts = urlsplit(url)
    names_container = parts.scheme in {"abfs", "abfss"} and parts.password is None
    if parts.username is not None and not names_container:
        raise TieringError(f"invalid URL of a bucket on {parts.hostname}: credentials do not belong into it")
    if parts.scheme not in SCHEMES | {"file"}:
        raise TieringError(
            f"invalid URL {url!r}: expected s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise TieringError(f"invalid URL {url!r}: expected file:///FOLDER with an absolute path")
    elif not parts.netloc:
        raise TieringError(f"invalid URL {url!r}: expected the name of a bucket behind {parts.scheme}://")
    if parts.query or parts.fragment:
        where = parts.hostname or "this machine"
        raise TieringError(f"invalid URL of a bucket on {where}: '?' and '#' are not allowed")


def check_endpoint(endpoint: str) -> None:
    """Raise TieringError for what is not the address of a server."""
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise TieringError(
            "invalid endpoint: expected the http or https address of a server, without credentials"
        )
    try:
        check_host(parts.hostname, setting="endpoint")
    except ValueError as error:
        raise TieringError(str(error)) from None


def open_bucket(url: str, *, endpoint: str | None = None, region: str | None = None) -> Bucket:
    """Return the bucket of a URL, without a request to it. Raises TieringError for an invalid URL or setting."""
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderBucket(Path(unquote(parts.path)))
    try:
        module = importlib.import_module(f"{__package__}.object_storage")
    except ModuleNotFoundError:
        raise TieringError(f"{url}: object storage needs pip install '.[s3]' in a clone") from None
    bucket: Bucket = module.ObjectStorage(url, endpoint=endpoint, region=region)
    return bucket
