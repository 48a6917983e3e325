"""What tiering asks of an object store. Implemented by `object_storage` (S3, Google Cloud Storage, Azure) and
`folder_bucket` (a folder).

Names are relative to the prefix of the bucket's URL. Every call raises BucketUnavailable when the store does not
answer, BucketRefused when it refuses the credentials or the call."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from timestone.disk.files import Data

PIECE_BYTES = 1 << 20
"""How much of an object is handed over at a time."""


class ObjectFacts(NamedTuple):
    """Facts of an object from a listing or a HEAD request."""

    name: str
    size_bytes: int
    tag: str | None
    """The entity tag; None when the store gives none, and only the bytes tell whether it is the same object."""
    modified_us: int
    """By the clock of the store."""


class Bucket(Protocol):
    """Objects below one prefix. Any thread may call."""

    @property
    def url(self) -> str:
        """Address for messages, without credentials."""

    def create(self, name: str, data: bytes) -> str | None:
        """Make an object and return its entity tag; of several callers with one name, one wins. Complete and durable
        when it returns. Raises ObjectExists."""

    def write(self, name: str, pieces: Iterable[bytes]) -> str | None:
        """Make an object of pieces that are asked for one by one, and return its entity tag. It appears whole and
        durable or not at all; what `pieces` raises passes through."""

    def read(self, name: str) -> bytes:
        """Return all of an object. Raises ObjectMissing."""

    def stream(self, name: str) -> Iterator[Data]:
        """All of an object, in pieces that fit into memory, with one request. Raises ObjectMissing."""

    def read_range(self, name: str, start: int, length_bytes: int) -> bytes:
        """Return a piece of an object, at least one byte long. Raises ObjectMissing."""

    def head(self, name: str) -> ObjectFacts:
        """Return the facts of an object without reading it. Raises ObjectMissing."""

    def objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectFacts]:
        """Yield the objects whose names begin with a prefix that ends at a slash, in the order of their names, from the
        first behind the name `after` on."""

    def prefixes(self, prefix: str) -> list[str]:
        """Return the beginnings of names up to the next slash behind a prefix that ends at a slash, or is empty;
        sorted."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; one that is not there counts as deleted."""
