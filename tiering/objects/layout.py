"""Names of the objects below a prefix. All are made and parsed here; no object is ever written twice.

    owners/<generation>.json                                          one for each time that a store began to upload
    <log id>/<log>-<partition>/
      manifest/<generation>-<number>.json.zst                         the greatest name is the state of the log
      manifest/<generation>-9999999999.json.zst                       the end of a log that was forgotten
      chapters/<base>-<end>-<generation>-<hash>.json.zst              older segments of large manifests
      segments/<base>-<end>-<generation>-<hash>.segment and .index    as they were sealed
      topics/<first id>-<end id>-<generation>-<hash>.topics           names, as the log's topic dictionary has them
      dictionaries/<number>-<generation>-<hash>.dictionary            what compressed segments need

Numbers have leading zeros, so names sort as numbers do. Each name holds the generation of its only writer, so no
store writes or adopts what another has begun. The hash is the BLAKE2b of 8 bytes of what makes the object unlike
others: of a segment and its index that of the index, else of the object itself."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from timestone.format import names

MANIFEST_SUFFIX = ".json.zst"
SEGMENT_SUFFIX = names.SEGMENT_SUFFIX
INDEX_SUFFIX = names.INDEX_SUFFIX
GENERATION_MOST = 10**10 - 1
"""What names have room for, of generations and of the numbers of manifests."""
OWNERS = "owners/"
CLUSTER = "cluster.json"
"""What etcd has of the cluster whose nodes upload below a prefix."""

_OWNER = re.compile(r"owners/(?P<generation>[0-9]{10})\.json")
_LOG = re.compile(r"(?P<log_id>[0-9a-f]{16})/(?P<folder>[^/]+)/")
_MANIFEST = re.compile(r"(?P<generation>[0-9]{10})-(?P<number>[0-9]{10})\.json\.zst")
_GENERATION = re.compile(r"[0-9-]*-(?P<generation>[0-9]{10})-[0-9a-f]{16}\.[a-z.]+")


def short_hash(pieces: Iterable[bytes]) -> str:
    """Return the hash of a name: 16 hex digits."""
    found = blake2b(digest_size=8)
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def owner_name(generation: int) -> str:
    """Return the object with which a store claims a generation."""
    return f"{OWNERS}{generation:010d}.json"


def parse_owner(name: str) -> int | None:
    """Return the generation of such an object, or None for another one."""
    match = _OWNER.fullmatch(name)
    return int(match["generation"]) if match else None


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Version of a log's manifest: the greatest one is current."""

    generation: int
    number: int

    @property
    def is_end(self) -> bool:
        """Return whether it records that the log was forgotten, instead of naming its objects."""
        return self.number == GENERATION_MOST


def version_name(version: Version) -> str:
    """Return a version as the names of manifests have it."""
    return f"{version.generation:010d}-{version.number:010d}"


def parse_version(text: str) -> Version:
    """Return the version of such a name. Raises ValueError."""
    generation, _, number = text.partition("-")
    return Version(int(generation), int(number))


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Place of the objects of one log in a bucket."""

    log_id: int
    log: str
    partition: int

    @property
    def prefix(self) -> str:
        """The beginning of all names of the log, with a slash at its end."""
        return f"{self.log_id:016x}/{names.log_folder(self.log, self.partition)}/"

    @classmethod
    def parse(cls, prefix: str) -> "LogPlace | None":
        """Return the log with such a prefix, or None."""
        match = _LOG.fullmatch(prefix)
        log = names.parse_log_folder(match["folder"]) if match else None
        return cls(int(match["log_id"], 16), *log) if match and log else None

    @property
    def manifests(self) -> str:
        """The beginning of the names of its manifests."""
        return f"{self.prefix}manifest/"

    def manifest(self, version: Version) -> str:
        return f"{self.manifests}{version_name(version)}{MANIFEST_SUFFIX}"

    def parse_manifest(self, name: str) -> Version | None:
        """Return the version of a manifest by its whole name, or None for another object."""
        match = _MANIFEST.fullmatch(name.removeprefix(self.manifests))
        return Version(int(match["generation"]), int(match["number"])) if match else None

    def chapter(self, base: int, end: int, generation: int, data: bytes) -> str:
        stem = f"{base:020d}-{end:020d}-{generation:010d}-{short_hash((data,))}"
        return f"{self.prefix}chapters/{stem}{MANIFEST_SUFFIX}"

    def segment_stem(self, base: int, end: int, generation: int, index_hash: str) -> str:
        """Return the name of a segment and its index without their suffixes. index_hash: `short_hash` of the index."""
        return f"{self.prefix}segments/{base:020d}-{end:020d}-{generation:010d}-{index_hash}"

    def topics(self, first: int, end: int, generation: int, data: bytes) -> str:
        return f"{self.prefix}topics/{first:010d}-{end:010d}-{generation:010d}-{short_hash((data,))}.topics"

    def dictionary(self, number: int, generation: int, data: bytes) -> str:
        stem = f"{number:010d}-{generation:010d}-{short_hash((data,))}"
        return f"{self.prefix}dictionaries/{stem}{names.DICTIONARY_SUFFIX}"


def generation_of(name: str) -> int | None:
    """Return the generation of the writer of a chapter, segment, index, topics or dictionary; None for another
    object."""
    match = _GENERATION.fullmatch(name.rpartition("/")[2])
    return int(match["generation"]) if match else None
