"""What the scrubber has found damaged, kept in the catalogue so that `inspect` can say it without reading all.

One document a damaged segment; a segment that is sound again, or gone, has none."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from timestone.disk.json_document import integer, json_object
from timestone.format import names

SPACE = "scrub"
"""The space of the catalogue's documents: `<log>-<partition>/<base offset>` for damage, `pass` for how far it
is."""
RANGES_MOST = 1000
"""Runs of damaged offsets that are remembered of one segment; more are counted, not listed."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Records [first, end) of a sealed segment that do not hold any more; empty for damage that costs no
    record."""

    log: str
    partition: int
    base_offset: int
    first: int
    end: int
    reason: str
    found_us: int
    """When it was found, microseconds since 1970."""

    def __str__(self) -> str:
        where = f"{names.log_folder(self.log, self.partition)}, segment {self.base_offset}"
        if self.first == self.end:
            return f"{where}: {self.reason}"
        last = f" to {self.end - 1}" if self.end - self.first > 1 else ""
        return f"{where}: offset{'s' * (self.end - self.first > 1)} {self.first}{last}: {self.reason}"


class Documents(Protocol):
    """The part of the catalogue that is used here."""

    def items(self, space: str) -> dict[str, bytes]: ...


def damage_key(log: str, partition: int, base_offset: int) -> str:
    """The key of a segment's damage."""
    return f"{names.log_folder(log, partition)}/{base_offset}"


def encode_damage(found: Sequence[Damage]) -> bytes:
    """The document of one segment."""
    ranges = [[one.first, one.end, one.reason] for one in found[:RANGES_MOST]]
    if len(found) > RANGES_MOST:
        ranges.append([found[-1].end, found[-1].end, f"and {len(found) - RANGES_MOST} more runs"])
    return json.dumps({"found_us": found[0].found_us, "ranges": ranges}).encode()


def known_damage(documents: Documents, newer: Mapping[str, bytes | None] | None = None) -> list[Damage]:
    """All damage on record, in order; with `newer`, what will be written there, in place of what is. Documents that
    make no sense are left out: the next pass writes them again."""
    found: list[Damage] = []
    for key, document in {**documents.items(SPACE), **(newer or {})}.items():
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
