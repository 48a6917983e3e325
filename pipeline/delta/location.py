"""Location of the tables: a folder, or a prefix in object storage, with what each table of it is read and written
through. Knows no table format.

Credentials come from the environment and the profile files of AWS. They are looked up for every use, handed to the
tasks that read and write, and never part of a message."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pyarrow.fs as pa_fs
from deltalake.fs import DeltaStorageHandler

from timestone_tiering.buckets.aws_profile import s3_settings
from timestone_tiering.buckets.bucket_url import check_url, is_url
from timestone_tiering.errors import TieringError

from ..errors import InvalidConfig

_S3 = ("s3", "s3a")
_VENDORS = ("AWS_", "GOOGLE_", "AZURE_")


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or URL."""

    uri: str

    @classmethod
    def of(cls, path: str) -> "Location":
        """Return the location for the setting `tables.path`. Raises InvalidConfig."""
        if not is_url(path):
            return cls(str(Path(path).absolute()))
        try:
            check_url(path)
        except TieringError as error:
            raise InvalidConfig(f"tables.path: {error}") from None
        scheme, _, rest = path.rstrip("/").partition("://")
        return cls(f"/{rest.partition('/')[2]}") if scheme == "file" else cls(f"{scheme}://{rest}")

    @property
    def folder(self) -> Path | None:
        """Return the folder; None for object storage."""
        return None if is_url(self.uri) else Path(self.uri)

    @property
    def checkpoint(self) -> Path:
        """Return the default folder of Spark's checkpoint: that of the tables, else one in the current folder."""
        return (
            self.folder / "_checkpoint"
            if self.folder
            else Path(f"pipeline-checkpoint-{crc32(self.uri.encode()):08x}")
        )

    def child(self, name: str) -> "Location":
        """Return the location of a table in this one."""
        return Location(f"{self.uri}/{name}")

    def options(self) -> dict[str, str]:
        """Return the settings of the client of the object storage, credentials among them. Raises InvalidConfig."""
        if self.folder is not None:
            return {}
        found = {key: value for key, value in os.environ.items() if key.startswith(_VENDORS)}
        if self.uri.split(":")[0] in _S3:
            found |= _s3_options(os.environ)
        return found

    def filesystem(self, options: Mapping[str, str]) -> pa_fs.FileSystem:
        """Return the files below this location."""
        if self.folder is not None:
            return pa_fs.SubTreeFileSystem(self.uri, pa_fs.LocalFileSystem())
        return pa_fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(options)))

    def threaded_filesystem(self, options: Mapping[str, str]) -> pa_fs.FileSystem:
        """Return the same for readers whose threads may still run when the interpreter ends: for folders and S3 by the
        clients of Arrow, because that of delta-rs calls Python from each thread."""
        scheme, _, prefix = self.uri.partition("://")
        if scheme not in _S3:
            return self.filesystem(options)
        url = options.get("AWS_ENDPOINT_URL") or options.get("AWS_ENDPOINT") or "https://"
        endpoint_scheme, _, endpoint = url.partition("://")
        client = pa_fs.S3FileSystem(
            access_key=options.get("AWS_ACCESS_KEY_ID"),
            secret_key=options.get("AWS_SECRET_ACCESS_KEY"),
            session_token=options.get("AWS_SESSION_TOKEN"),
            region=options.get("AWS_REGION"),
            scheme=endpoint_scheme,
            endpoint_override=endpoint.rstrip("/") or None,
        )
        return pa_fs.SubTreeFileSystem(prefix, client)


def _s3_options(environment: Mapping[str, str]) -> dict[str, str]:
    try:
        settings = s3_settings(environment)
        if "credential_provider" in settings:
            keys = settings.pop("credential_provider")()
            settings |= {key: keys[key] for key in ("access_key_id", "secret_access_key", "token")}
    except TieringError as error:
        raise InvalidConfig(f"tables.path: {error}") from None
    names = {"endpoint": "AWS_ENDPOINT_URL", "token": "AWS_SESSION_TOKEN"}
    found = {
        names.get(key, f"AWS_{key.upper()}"): str(value)
        for key, value in settings.items()
        if value is not None
    }
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found
