"""Arrived messages by sender and number, and counts of lost, repeated and misordered ones."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint32]


@dataclass(slots=True)
class _Sender:
    """Messages of one sender. As long as each follows the one before, `following` is sufficient."""

    following: int = 0
    """One above the highest number seen."""
    seen: npt.NDArray[np.bool_] | None = None
    """The numbers that arrived, kept once one was missing or repeated."""
    late: int = 0
    repeated: int = 0

    def add(self, numbers: Numbers) -> None:
        first, count = self.following, len(numbers)
        if (
            self.seen is None
            and numbers[0] == first
            and int(numbers[-1]) - first == count - 1
            and _rises(numbers)
        ):
            self.following += count
            return
        if self.seen is None:
            self.seen = np.ones(first, bool)
        highest = max(first, int(numbers.max()) + 1)
        if highest > len(self.seen):
            self.seen = np.concatenate([self.seen, np.zeros(max(highest, 2 * first) - len(self.seen), bool)])
        fresh_values, fresh_places = np.unique(numbers, return_index=True)
        is_new = np.zeros(count, bool)
        is_new[fresh_places] = ~self.seen[fresh_values]
        before = np.maximum.accumulate(np.concatenate([[first - 1], numbers[:-1].astype(np.int64)]))
        self.late += int(np.count_nonzero(is_new & (numbers < before)))
        self.repeated += int(np.count_nonzero(~is_new))
        self.seen[fresh_values] = True
        self.following = highest

    @property
    def distinct(self) -> int:
        return self.following if self.seen is None else int(np.count_nonzero(self.seen))


def _rises(numbers: Numbers) -> bool:
    return bool((np.diff(numbers) == 1).all())


@dataclass(slots=True)
class DeliveryCheck:
    """Messages of one subscriber."""

    received: int = 0
    _senders: dict[int, _Sender] = field(default_factory=dict)

    def add(self, senders: Numbers, numbers: Numbers) -> None:
        """Add messages in the order of their arrival."""
        self.received += len(numbers)
        if (senders == senders[0]).all():
            self._of(int(senders[0])).add(numbers)
            return
        order = np.argsort(senders, kind="stable")
        ordered = senders[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        for sender, own in zip(ordered[starts], np.split(numbers[order], starts[1:]), strict=True):
            self._of(int(sender)).add(own)

    def _of(self, sender: int) -> _Sender:
        return self._senders.setdefault(sender, _Sender())

    def distinct(self) -> int:
        """Return how many different messages arrived."""
        return sum(sender.distinct for sender in self._senders.values())

    def to_json(self, expected: int) -> dict[str, Any]:
        """Return the counts for `expected` messages."""
        return {
            "received": self.received,
            "lost": expected - self.distinct(),
            "duplicates": sum(sender.repeated for sender in self._senders.values()),
            "reordered": sum(sender.late for sender in self._senders.values()),
        }
