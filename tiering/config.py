"""Settings of a tier as a frozen value: units, defaults and ranges."""

from dataclasses import dataclass

from timestone.config import DAY_MS, MIB
from timestone.settings_schema import Declared, setting

from .buckets.bucket_url import check_endpoint, check_url


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig(Declared):
    """Settings of a tier: where the sealed segments of a store go, and how fast. Raises TieringError or ValueError for
    an invalid value."""

    url: str | None = setting(
        None,
        "sealed segments are uploaded there: s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER; none: nowhere",
        metavar="URL",
    )
    endpoint: str | None = setting(
        None, "address of a server with the S3 interface, instead of that of the environment", metavar="URL"
    )
    region: str | None = setting(None, "region of the bucket, instead of that of the environment")
    upload_bytes_per_s: int = setting(0, "the most that is uploaded in a second; 0 for no limit", low=0)
    cache_bytes: int = setting(
        1024 * MIB,
        "segments that only the bucket has are kept on the local disk up to this size once they were read",
        low=0,
    )

    remote_delete_delay_ms: int = setting(
        DAY_MS,
        "objects that retention, a killed upload or a newer manifest has left are deleted this long after, for readers "
        "that planned with them",
        low=0,
    )

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        if self.url is not None:
            check_url(self.url)
        if self.endpoint is not None:
            check_endpoint(self.endpoint)
