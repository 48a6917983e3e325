"""S3, Google Cloud Storage and Azure, through obstore (extra `s3`).

Credentials come from where the tools of each vendor look for them: the environment, the metadata of the machine, and
for S3 the profile files (`aws_profile`). None is logged, and what an error says is cut in front of anything that could
hold one."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import from_url

from ..errors import BucketError, BucketRefused, BucketUnavailable, ObjectExists, ObjectMissing, TieringError
from .aws_profile import s3_settings
from .bucket import PIECE_BYTES, ObjectFacts

_PART_BYTES = 8 << 20
"""Of an object written in parts; up to `_PARTS_AT_ONCE` of them are in memory."""
_PARTS_AT_ONCE = 3
_ANSWER = timedelta(seconds=10)
"""How long a read waits for the next bytes, so that those who read wait no longer for a server that hangs. A write may
take longer, as its answer comes after its bytes."""
_WRITE, _READ = timedelta(minutes=1), timedelta(days=1)
"""For all of a call. A large object on a slow line takes long to read, and `_ANSWER` ends what does not move."""
_LISTED_AT_ONCE = 1000
_DELETED_AT_ONCE = 1000
_QUERY = re.compile(r"(?P<address>https?://[^\s?)]*)\?[^\s)]*")
"""A signed address has its signature behind the question mark."""
_METADATA = "169.254.169.254"
_ANSWER_TEXT = re.compile(r"<.*?<Code>(?P<code>\w+)</Code>.*?<Message>(?P<message>[^<]*)</Message>.*")
_PREFACE = re.compile(r"^Generic \w+ error: (Error performing [\w ]+ request: )?")
"""What obstore says before the call that failed."""
_NEVER = (
    "NoSuchBucket",
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "TooSkewed",
)
"""Answers that stay the same until something is changed, in the bucket or here."""


class ObjectStorage:
    """The objects below a prefix of a bucket."""

    def __init__(self, url: str, *, endpoint: str | None = None, region: str | None = None) -> None:
        """endpoint, region: override what the environment and the profile say. Raises TieringError when the URL or a
        setting is not valid."""
        self._url = url.rstrip("/")
        settings: dict[str, Any] = {}
        if urlsplit(url).scheme in {"s3", "s3a"}:
            settings = _s3_settings(endpoint, region)
            endpoint = settings.get("endpoint")
        client: Any = {
            "allow_http": (endpoint or "").startswith("http://"),
            "timeout": _WRITE,
            "connect_timeout": timedelta(seconds=5),
        }
        try:
            self._store = from_url(
                self._url, client_options=client, retry_config=_retries(timedelta(seconds=30)), **settings
            )
            self._reading = from_url(
                self._url,
                client_options=client | {"timeout": _READ, "read_timeout": _ANSWER},
                retry_config=_retries(_ANSWER),
                **settings,
            )
        except (exceptions.BaseError, ValueError) as error:
            raise TieringError(f"{self._url}: {_reason(error)}") from None

    @property
    def url(self) -> str:
        return self._url

    def create(self, name: str, data: bytes) -> str | None:
        with self._told(name):
            return _tag(obstore.put(self._store, name, data, mode="create"))

    def write(self, name: str, pieces: Iterable[bytes]) -> str | None:
        given = iter(pieces)
        first: list[bytes] = []
        size = 0
        for piece in given:
            first.append(piece)
            size += len(piece)
            if size > _PART_BYTES:
                break
        with self._told(name):
            if size <= _PART_BYTES:
                return _tag(obstore.put(self._store, name, b"".join(first), use_multipart=False))
            whole = chain(first, given)
            first = []
            return _tag(
                obstore.put(self._store, name, whole, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
            )

    def read(self, name: str) -> bytes:
        with self._told(name):
            return bytes(obstore.get(self._reading, name).bytes())

    def stream(self, name: str) -> Iterator[memoryview]:
        with self._told(name):
            for piece in obstore.get(self._reading, name).stream(min_chunk_size=PIECE_BYTES):
                yield memoryview(piece)

    def read_range(self, name: str, start: int, length_bytes: int) -> bytes:
        with self._told(name):
            return bytes(obstore.get_range(self._reading, name, start=start, length=length_bytes))

    def head(self, name: str) -> ObjectFacts:
        with self._told(name):
            return _facts(obstore.head(self._reading, name))

    def objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectFacts]:
        with self._told(prefix):
            listing = obstore.list(self._reading, prefix, offset=after or None, chunk_size=_LISTED_AT_ONCE)
            for some in listing:
                for meta in some:
                    yield _facts(meta)

    def prefixes(self, prefix: str) -> list[str]:
        with self._told(prefix):
            found = obstore.list_with_delimiter(self._reading, prefix or None)
            return sorted(f"{one.rstrip('/')}/" for one in found["common_prefixes"])

    def delete(self, names: Sequence[str]) -> None:
        for at in range(0, len(names), _DELETED_AT_ONCE):
            with self._told(names[at]):
                obstore.delete(self._store, list(names[at : at + _DELETED_AT_ONCE]))

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Raise what obstore raises as an error of ours."""
        try:
            yield
        except FileNotFoundError:
            raise ObjectMissing(f"{self._url}: there is no object {name}") from None
        except exceptions.AlreadyExistsError:
            raise ObjectExists(f"{self._url}: {name} exists already") from None
        except exceptions.PreconditionError:  # of a server that answers a lost race with 409 or 412
            raise ObjectExists(f"{self._url}: {name} exists already, or is being made") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise BucketRefused(f"{self._url}: {_reason(error)}") from None
        except exceptions.BaseError as error:
            raise _failure(self._url, error) from None


def _retries(most: timedelta) -> Any:
    return {
        "max_retries": 3,
        "retry_timeout": most,
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=3),
            "base": 2,
        },
    }


def _failure(url: str, error: Exception) -> BucketError:
    reason = _reason(error)
    if _METADATA in reason:  # asked last, when nothing else has credentials
        return BucketRefused(
            f"{url}: no credentials in the environment or a profile, and none from the machine"
        )
    refused = any(mark in reason for mark in _NEVER)
    return (BucketRefused if refused else BucketUnavailable)(f"{url}: {reason}")


def _reason(error: Exception) -> str:
    """Return the error of obstore as one line, without the queries of addresses and the numbers of requests."""
    text = _QUERY.sub(r"\g<address>", str(error).partition("\n\n")[0].replace("\n", " "))
    text = _PREFACE.sub("", text)
    answer = _ANSWER_TEXT.search(text)
    return f"{text[: answer.start()].rstrip(': ')}: {answer['code']}: {answer['message']}" if answer else text


def _s3_settings(endpoint: str | None, region: str | None) -> dict[str, Any]:
    settings = s3_settings(os.environ)
    if endpoint is not None:
        settings["endpoint"] = endpoint
    if region is not None:
        settings["region"] = region
    return settings


def _tag(result: Any) -> str | None:
    tag: str | None = result["e_tag"]
    return tag


def _facts(meta: Any) -> ObjectFacts:
    return ObjectFacts(
        meta["path"], meta["size"], meta["e_tag"], int(meta["last_modified"].timestamp() * 1_000_000)
    )
