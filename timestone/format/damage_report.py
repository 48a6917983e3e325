"""Damage found by the scrubber, kept in the catalogue so that `inspect` can report it without reading all records.

One document for each damaged segment; it is removed when the segment is intact again or gone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from timestone.disk.catalog import Catalog
from timestone.disk.json_document import integer, json_object
from timestone.format import names

SPACE = "scrub"
"""Namespace in the catalogue: `<log>-<partition>/<base offset>` for damage, `pass` for the progress."""
RANGES_MOST = 1000
"""Maximum recorded ranges of damaged offsets of one segment; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged records [first, end) of a sealed segment; an empty range for damage that affects no record."""

    log: str
    partition: int
    base_offset: int
    first: int
    end: int
    reason: str
    found_us: int
    """Time of the finding, microseconds since 1970."""

    def __str__(self) -> str:
        where = f"{names.log_folder(self.log, self.partition)}, segment {self.base_offset}"
        if self.first == self.end:
            return f"{where}: {self.reason}"
        last = f" to {self.end - 1}" if self.end - self.first > 1 else ""
        return f"{where}: offset{'s' * (self.end - self.first > 1)} {self.first}{last}: {self.reason}"


def damage_key(log: str, partition: int, base_offset: int) -> str:
    """Return the key of the damage of a segment."""
    return f"{names.log_folder(log, partition)}/{base_offset}"


def encode_damage(found: Sequence[Damage]) -> bytes:
    """Encode the damage of one segment."""
    ranges = [[one.first, one.end, one.reason] for one in found[:RANGES_MOST]]
    if len(found) > RANGES_MOST:
        ranges.append([found[-1].end, found[-1].end, f"and {len(found) - RANGES_MOST} more runs"])
    return json.dumps({"found_us": found[0].found_us, "ranges": ranges}).encode()


def known_damage(documents: Catalog, newer: Mapping[str, bytes | None] | None = None) -> list[Damage]:
    """Return all recorded damage in order. newer: documents about to be written, which replace the stored ones."""
    return decode_damage({**documents.items(SPACE), **(newer or {})})


def decode_damage(documents: Mapping[str, bytes | None]) -> list[Damage]:
    """Return the damage that documents record, in order. Invalid documents are skipped: the next pass of the scrubber
    writes them again."""
    found: list[Damage] = []
    for key, document in documents.items():
        folder, slash, base = key.partition("/")
        log = names.parse_log_folder(folder)
        if not log or not slash or not base.isdecimal() or document is None:
            continue
        try:
            values = json_object(document)
            found += [
                Damage(
                    *log, int(base), integer(first), integer(end), str(reason), integer(values["found_us"])
                )
                for first, end, reason in values["ranges"]
            ]
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda one: (one.log, one.partition, one.base_offset, one.first))
