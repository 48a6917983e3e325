"""Selection of the logs that a query reads: by name, by pattern or by partition. Knows names, opens nothing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition
from timestone.format.names import is_server_log


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the user; one of the first three is set, or none for every log of the store. The logs that a server
    writes about itself are read only by name."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    """For `re.ASCII`, as in Java: `\\d` and `\\w` are ASCII."""
    partitions: tuple[LogPartition, ...] = ()
    advice: str = ""
    """Additional text of the error for a log that is selected by name and missing."""
    may_be_missing: bool = False
    """Whether a missing log that is selected by name is left out, instead of an error."""

    def choose(self, known: Iterable[tuple[str, int]]) -> list[LogPartition]:
        """Return the selected ones of the log partitions `known`, sorted. Raises InvalidOption for a missing one that
        is selected by name. A pattern may match nothing yet."""
        there = sorted(LogPartition(*one) for one in known)
        if not self.may_be_missing:
            self._refuse_missing(there)
        if self.names:
            names = set(self.names)
            return [one for one in there if one.log in names]
        if self.partitions:
            partitions = set(self.partitions)
            return [one for one in there if one in partitions]
        pattern = re.compile(self.pattern or ".*", re.ASCII)
        return [one for one in there if pattern.fullmatch(one.log) and not is_server_log(one.log)]

    def _refuse_missing(self, there: list[LogPartition]) -> None:
        logs, partitions = {one.log for one in there}, set(there)
        missing: list[object] = [name for name in self.names if name not in logs]
        missing += [one for one in self.partitions if one not in partitions]
        if missing:
            known = ", ".join(str(one) for one in there) if self.partitions else ", ".join(sorted(logs))
            raise InvalidOption(
                f"the store has no log {missing[0]}; it has {known or 'no logs yet'}{self.advice}"
            )
