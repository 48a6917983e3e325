"""Which store uploads to a prefix: one at a time, told apart by numbered claims.

A store claims the next generation by making the object `owners/<generation>.json`, which one caller can. It continues
only from a claim that is its own: the catalogue of the store remembers the token of each. So another store is refused;
a copy of this one is refused once this one has claimed again; and if it comes first, this one sees a claim that is not
its own before it commits the next manifest, and stops.

Whether a bucket keeps the promise that one caller wins is tried before each claim: there are servers that accept the
header and ignore it."""

import json
import os
import platform
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from timestone.disk.json_document import integer, json_object

from ..buckets.bucket import Bucket
from ..errors import DamagedObject, ObjectExists, ObjectMissing, PrefixInUse, UnfitBucket
from ..objects.layout import GENERATION_MOST, OWNERS, owner_name, parse_owner

SPACE = "tiering"
"""The space of the catalogue's documents: one for each URL that the store has uploaded to."""
_PROBES = 8


class Documents(Protocol):
    """The catalogue of a store, as `Store.documents` has it."""

    def get(self, space: str, key: str) -> bytes | None: ...
    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None: ...


class Owner(Protocol):
    """Whether this process extends the history of a log, and with which generation in the names of its objects."""

    @property
    def generation(self) -> int | None:
        """Return the generation; None while another process is the owner, or before a claim."""

    def check(self) -> None:
        """Raise PrefixInUse when another process has become the owner, as far as the bucket tells."""


class LedLog(Protocol):
    """Replica of a log. Implemented by `timestone.replication.replicated_log.ReplicatedLog`."""

    @property
    def led_generation(self) -> int | None: ...


class Leadership:
    """Ownership of the replica that leads a log. It needs no claim: a generation has one leader, and what an earlier
    one still writes sorts in front of what the later one does, and is left out by its manifests."""

    def __init__(self, log: LedLog) -> None:
        self._log = log

    @property
    def generation(self) -> int | None:
        """Return the generation in which this replica leads; None while it does not."""
        return self._log.led_generation

    def check(self) -> None:
        """Do nothing: the uploader compares generations."""


class Claim(NamedTuple):
    """A generation and the random token of the store that claimed it."""

    generation: int
    token: str

    @classmethod
    def decode(cls, document: bytes) -> "Claim":
        """Raises ValueError or TypeError for what is not a claim."""
        fields = json_object(document)
        generation, token = integer(fields.get("generation"), 1, GENERATION_MOST), fields.get("token")
        if not isinstance(token, str) or not token:
            raise ValueError("invalid token")
        return cls(generation, token)


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Facts in a claim about the process that made it."""

    generation: int
    host: str | None
    pid: int | None
    claimed_us: int | None


class Ownership:
    """Claim of this store on a prefix. For one thread at a time."""

    def __init__(self, bucket: Bucket, documents: Documents, now_us: Callable[[], int]) -> None:
        self._bucket = bucket
        self._documents = documents
        self._now_us = now_us
        self.generation: int | None = None
        """What this process has claimed; None before `claim`."""

    def claim(self) -> int:
        """Claim the next generation. When the bucket did not answer, call it again: the outcome is found out then.

        Raises PrefixInUse, UnfitBucket, DamagedObject, BucketError, OSError."""
        newest = newest_claim(self._bucket)
        known = self._known()
        if newest is not None and newest not in known:
            raise PrefixInUse(
                f"{self._bucket.url}: another store uploads to this prefix ({self._about(newest)}); choose another "
                "prefix, or stop that one for good and run `timestone tier claim`"
            )
        probe(self._bucket)
        wanted = self._intended(newest, known)
        body = {**wanted._asdict(), "host": platform.node(), "pid": os.getpid(), "claimed_us": self._now_us()}
        try:
            self._bucket.create(owner_name(wanted.generation), json.dumps(body).encode())
        except ObjectExists:
            found = read_claim(self._bucket, wanted.generation)
            if found != wanted:  # else the answer to an earlier try was lost
                raise PrefixInUse(
                    f"{self._bucket.url}: another store has just begun to upload to this prefix ({self._about(found)})"
                ) from None
        self.generation = wanted.generation
        return wanted.generation

    def check(self) -> None:
        """Raise PrefixInUse when another store has claimed the prefix since."""
        assert self.generation is not None
        own = owner_name(self.generation)
        for facts in self._bucket.objects(OWNERS, after=own):
            if (generation := parse_owner(facts.name)) is not None:
                found = read_claim(self._bucket, generation)
                raise PrefixInUse(
                    f"{self._bucket.url}: another store has taken over this prefix ({self._about(found)}); this one "
                    "uploads no more"
                )

    def adopt(self) -> Claim | None:
        """Take the newest claim for this store's own, so that its next claim is accepted: after a restore, or when the
        other store is known to be gone. Returns it, None for a prefix without one."""
        newest = newest_claim(self._bucket)
        if newest is not None:
            self._remember([newest])
        return newest

    def _intended(self, newest: Claim | None, known: list[Claim]) -> Claim:
        """Return the claim to make, noted before it is made; the same one after an unknown outcome."""
        generation = newest.generation + 1 if newest else 1
        if known and known[-1].generation == generation:
            return known[-1]
        wanted = Claim(generation, secrets.token_hex(16))
        self._remember([*([newest] if newest else []), wanted])
        return wanted

    def _known(self) -> list[Claim]:
        """Return the claims that may be this store's: the last one, and the one before."""
        document = self._documents.get(SPACE, self._bucket.url)
        if document is None:
            return []
        try:
            return [Claim.decode(json.dumps(one).encode()) for one in json_object(document)["claims"]]
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedObject(f"catalogue, {SPACE} {self._bucket.url}", str(error)) from error

    def _remember(self, claims: list[Claim]) -> None:
        document = json.dumps({"claims": [claim._asdict() for claim in claims]}).encode()
        self._documents.put_many(SPACE, {self._bucket.url: document})

    def _about(self, claim: Claim) -> str:
        return describe_claim(self._bucket, claim.generation)


def newest_claim(bucket: Bucket) -> Claim | None:
    """Return the newest claim on a prefix. Raises DamagedObject, BucketError."""
    generations = [found for one in bucket.objects(OWNERS) if (found := parse_owner(one.name)) is not None]
    return read_claim(bucket, max(generations)) if generations else None


def read_claim(bucket: Bucket, generation: int) -> Claim:
    """Return the claim of a generation. Raises DamagedObject, BucketError."""
    name = owner_name(generation)
    try:
        return Claim.decode(bucket.read(name))
    except (ValueError, TypeError) as error:
        raise DamagedObject(name, str(error)) from error


def read_claim_facts(bucket: Bucket, generation: int) -> ClaimFacts:
    """Return which process made a claim; None for each fact that is not in it. Raises BucketError."""
    try:
        fields = json_object(bucket.read(owner_name(generation)))
    except (ValueError, ObjectMissing):
        fields = {}
    host, pid, claimed_us = (fields.get(name) for name in ("host", "pid", "claimed_us"))
    return ClaimFacts(
        generation,
        host[:100] if isinstance(host, str) else None,
        pid if isinstance(pid, int) else None,
        claimed_us if isinstance(claimed_us, int) else None,
    )


def describe_claim(bucket: Bucket, generation: int) -> str:
    """Return a description of the process that made a claim."""
    found = read_claim_facts(bucket, generation)
    who = "" if found.host is None else f", host {found.host!r}, pid {found.pid}"
    return f"generation {generation}{who}"


def probe(bucket: Bucket) -> None:
    """Have several callers make one object at the same time. Raises UnfitBucket unless exactly one of them does;
    BucketError."""
    name = f"probe/{secrets.token_hex(16)}"

    def try_it(number: int) -> bool:
        try:
            bucket.create(name, f"{number}".encode())
        except ObjectExists:
            return False
        return True

    try:
        with ThreadPoolExecutor(_PROBES) as pool:
            winners = [number for number, won in enumerate(pool.map(try_it, range(_PROBES))) if won]
        found = bucket.read(name)
    finally:
        bucket.delete([name])
    # None: the answer to the winner was lost, and its second try found the object of the first.
    if len(winners) > 1 or (winners and found != f"{winners[0]}".encode()):
        raise UnfitBucket(
            f"{bucket.url}: of {_PROBES} callers that made one object, {len(winners)} had success: expected a server "
            "that honours If-None-Match"
        )
