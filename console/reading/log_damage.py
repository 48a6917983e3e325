"""Damage to the files of logs: the logs are examined in turn, a few at a look, so that a look stays short."""

import threading
import time
from collections import Counter
from typing import NamedTuple

from timestone.disk.files import Files
from timestone.errors import TimestoneError
from timestone.format.damage_report import SPACE, Damage, decode_damage
from timestone.format.names import log_folder
from timestone.repair.inspection_report import LogReport
from timestone.repair.log_inspection import LogInspection
from timestone.view import StoreView

from .segment_map import TROUBLE

_LOOK_S = 0.05
_EVERY_S = 30.0
"""Least time between two examinations of a log."""
_SHARE = 100
"""An examination that took a second is repeated after this many of them, at the earliest."""
_SHOWN_MOST = 100


class DamagedLog(NamedTuple):
    """Log with damaged files."""

    log: str
    partition: int
    text: str
    is_loss: bool
    """Whether more is missing or damaged than the tail that a crash tears."""
    found_us: int | None
    """When the scrubber found it."""


class LogDamage:
    """What is wrong with the files of a store. Usable from any thread."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._files = Files()
        self._found: dict[tuple[str, int], DamagedLog | None] = {}
        self._due_s: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()

    def look(self, *, owned: bool) -> list[DamagedLog]:
        """Return the damaged logs as far as they are known, after some more were examined. owned: a process writes to
        the store now, so a torn tail is one that grows."""
        with self._lock:
            names = self._view.log_names(server=True)
            for gone in self._due_s.keys() - set(names):
                del self._due_s[gone], self._found[gone]
            began_s = time.monotonic()
            due = [one for one in names if self._due_s.get(one, 0.0) <= began_s]
            scrubbed = self._scrubbed() if due else []
            for one in sorted(due, key=lambda one: self._due_s.get(one, 0.0)):
                at_s = time.monotonic()
                self._found[one] = self._examined(*one, scrubbed, owned=owned)
                now_s = time.monotonic()
                self._due_s[one] = now_s + max(_EVERY_S, _SHARE * (now_s - at_s))
                if now_s - began_s > _LOOK_S:
                    break
            return [found for _, found in sorted(self._found.items()) if found is not None][:_SHOWN_MOST]

    def _scrubbed(self) -> list[Damage]:
        try:
            return decode_damage(self._view.documents(SPACE))
        except (TimestoneError, OSError):
            return []  # the page of the log says why

    def _examined(
        self, name: str, partition: int, scrubbed: list[Damage], *, owned: bool
    ) -> DamagedLog | None:
        row = self._view.row(name, partition)
        report = LogInspection(
            self._files, self._view.path, (name, partition), row, deep=False, progress=None
        ).report()
        bases = {one.base_offset for one in report.segments}
        here = [
            one
            for one in scrubbed
            if (one.log, one.partition) == (name, partition) and one.base_offset in bases
        ]
        words, is_loss = _words(report, owned=owned)
        if here:
            words.append(f"the scrubber found damage: {here[0].reason}")
        if not words:
            return None
        return DamagedLog(
            name,
            partition,
            f"{log_folder(name, partition)}: {', '.join(words)}",
            is_loss or bool(here),
            min((one.found_us for one in here), default=None),
        )


def _words(report: LogReport, *, owned: bool) -> tuple[list[str], bool]:
    """Return what is wrong with a log in words, and whether it is a loss."""
    if report.error:
        return [f"it cannot be read: {report.error}"], True
    shown = [one for one in TROUBLE if not (owned and one == "torn")]
    states = Counter(one.state for one in report.segments if one.state in shown)
    is_loss = bool(states.keys() - {"torn"}) or any(one.lost_durable for one in report.segments)
    words = [f"{_many(states[one], 'segment')} {_STATES[one]}" for one in shown if states[one]]
    if report.missing:
        words.append(f"{_many(sum(end - first for first, end in report.missing), 'offset')} missing")
    if report.topics_reason:
        words.append(report.topics_reason)
    elif report.topic_names_lost:
        words.append(f"{_many(report.topic_names_lost, 'topic name')} lost")
    return words, is_loss or len(words) > len(states)


_STATES = {"damaged": "damaged", "torn": "with a torn tail", "orphan": "without one of its two files"}


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
