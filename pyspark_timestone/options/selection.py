"""Which logs of a store a query reads: by name, by pattern or by partition. Knows names, opens nothing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user chose; one of the first three is set, or none for every log of the store."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[LogPartition, ...] = ()
    may_be_missing: bool = False
    """Is a log that was asked for by name and is not there left out, instead of an error?"""

    def choose(self, known: Iterable[tuple[str, int]]) -> list[LogPartition]:
        """The chosen ones of the log partitions `known`, sorted.

        Raises InvalidOption for one that was asked for by name and is not there. A pattern may match nothing yet.
        """
        there = sorted(LogPartition(*one) for one in known)
        if not self.may_be_missing:
            self._refuse_missing(there)
        if self.names:
            names = set(self.names)
            return [one for one in there if one.log in names]
        if self.partitions:
            partitions = set(self.partitions)
            return [one for one in there if one in partitions]
        pattern = re.compile(self.pattern or ".*")
        return [one for one in there if pattern.fullmatch(one.log)]

    def _refuse_missing(self, there: list[LogPartition]) -> None:
        logs, partitions = {one.log for one in there}, set(there)
        missing: list[object] = [name for name in self.names if name not in logs]
        missing += [one for one in self.partitions if one not in partitions]
        if missing:
            known = ", ".join(str(one) for one in there) if self.partitions else ", ".join(sorted(logs))
            raise InvalidOption(f"the store has no log {missing[0]}; it has {known or 'no logs yet'}")
