"""Scrubbing: verifies every sealed segment from the disk at intervals, at a limited rate, to find bit rot while intact
copies still exist elsewhere.

Damage is logged, and recorded in the catalogue for `Store.damage` and `timestone inspect`. Nothing is changed: reading
a damaged record raises CorruptRecord as before.

A pass goes through all logs and continues where the last process stopped. It runs on the maintenance thread in
slices of a few hundred kilobytes and takes no lock of appends or reads."""

import json
import logging
import time
from collections.abc import Iterator

from timestone.disk.json_document import json_object
from timestone.errors import CorruptLog, UnknownLog
from timestone.format.damage_report import SPACE, Damage, damage_key, encode_damage, known_damage
from timestone.recovery.record_verifier import UnprovenRange
from timestone.segment import Segment
from timestone.upkeep.host import UpkeptLog, UpkeptStore
from timestone.upkeep.segment_check import SegmentCheck
from timestone.upkeep.sliced_pass import SlicedPass, Slices

_LOGGER = logging.getLogger("timestone")
_PASS = "pass"
_FIRST_S = 60.0
"""Delay after the open, when the disk is busy enough."""
_SAVED_EVERY_S = 60.0
_SLICE_BYTES = 256 * 1024
_LOGGED_MOST = 20


class Scrubber:
    """Verifies the sealed segments of a store. One thread at a time calls `run` or `scrub`."""

    def __init__(self, store: UpkeptStore) -> None:
        self._store = store
        self._rate = store.config.scrub_bytes_per_s
        self._interval_s = store.config.scrub_interval_ms / 1000
        self._passes = SlicedPass(lambda: self._pass(self._at or self._cursor()))
        self._at: tuple[str, int, int] | None = None
        self._saved_s = time.monotonic()
        self._known: set[str] = set()
        self._unnoted: dict[str, bytes | None] = {}
        """Documents that could not be written to the catalogue yet."""

    def expect(self) -> None:
        """Schedule the first pass, some time after the open."""
        if self._rate:
            self._store.maintenance.expect(self.run, max(_FIRST_S, self._pause_s()))

    def run(self) -> float | None:
        """Run one slice as a task. Return the seconds until the next."""
        read_bytes = self._passes.step()
        if read_bytes is None:
            self._put_state({"ended_us": self._store.now_us()})
            return self._interval_s
        return read_bytes / self._rate

    def scrub(self) -> list[Damage]:
        """Run a whole pass now, unthrottled and apart from the background pass. Return all known damage."""
        self._saved_s = float("inf")
        for _ in self._pass(None):
            if self._store.maintenance.stopping:
                break
        return known_damage(self._store.documents, self._unnoted)

    def close(self) -> None:
        """Store the progress of the pass."""
        if self._passes.begun:
            self._save_cursor()
        self._passes.close()

    def _pass(self, after: tuple[str, int, int] | None) -> Slices:
        """Check everything after a position; yields the bytes of each slice."""
        self._known = {key for key in self._store.documents.items(SPACE) if key != _PASS}
        live: set[str] = set()
        for name, partition in self._store.log_names(server=True):
            try:
                log = self._store.log(name, partition, create=False)
            except UnknownLog:  # deleted since the pass began
                continue
            for segment in log.segment_list.segments:
                place = (name, partition, segment.base_offset)
                live.add(damage_key(*place))
                if segment.trailer is None or (after is not None and place <= after):
                    continue
                yield from self._check(log, segment)
                self._at = place
                if time.monotonic() - self._saved_s > _SAVED_EVERY_S:
                    self._save_cursor()
        if self._known - live:
            self._put(dict.fromkeys(self._known - live))
        self._at = None

    def _check(self, log: UpkeptLog, segment: Segment) -> Iterator[int]:
        try:
            check = SegmentCheck(self._store.files, segment)
            yield from check.slices(_SLICE_BYTES)
        except FileNotFoundError:
            if log.rewrites.is_current(segment):
                gone = [UnprovenRange(segment.base_offset, segment.end_offset, "its files are missing")]
                self._report(log, segment, gone)
            return
        except OSError as error:  # no descriptor or permission: the state of the records is unknown
            _LOGGER.warning("%s, segment %d could not be checked: %s", log.folder, segment.base_offset, error)
            return
        if log.rewrites.is_current(segment):  # otherwise its files may have changed during the check
            self._report(log, segment, check.damaged)

    def _report(self, log: UpkeptLog, segment: Segment, found: list[UnprovenRange]) -> None:
        key = damage_key(log.name, log.partition, segment.base_offset)
        if not found:
            if key in self._known:
                _LOGGER.warning("%s, segment %d: sound again", log.folder, segment.base_offset)
                self._put({key: None})
            return
        now_us = self._store.now_us()
        damage = [
            Damage(log.name, log.partition, segment.base_offset, one.first, one.end, one.reason, now_us)
            for one in sorted(found, key=lambda one: one.first)
        ]
        for one in damage[:_LOGGED_MOST]:
            _LOGGER.error("damaged: %s", one)
        if len(damage) > _LOGGED_MOST:
            _LOGGER.error("damaged: %s: %d runs of records in all", log.folder, len(damage))
        self._put({key: encode_damage(damage)})

    # Progress of a pass: {"at": [log, partition, base]} during one, {"ended_us": …} after it.

    def _state(self) -> dict[str, object]:
        try:
            return json_object(self._store.documents.get(SPACE, _PASS) or b"{}")
        except (OSError, CorruptLog, ValueError):
            return {}  # the pass begins at the front

    def _cursor(self) -> tuple[str, int, int] | None:
        at = self._state().get("at")
        if isinstance(at, list) and [type(one) for one in at] == [str, int, int]:
            return (at[0], at[1], at[2])
        return None

    def _save_cursor(self) -> None:
        self._saved_s = time.monotonic()
        if self._at is not None:
            self._put_state({"at": list(self._at)})

    def _put_state(self, state: dict[str, object]) -> None:
        self._put({_PASS: json.dumps(state).encode()})

    def _put(self, documents: dict[str, bytes | None]) -> None:
        self._unnoted.update(documents)
        try:
            self._store.documents.put_many(SPACE, self._unnoted)
        except OSError as error:  # the next time all of it
            _LOGGER.warning("the findings of the scrubber could not be stored: %s", error)
        else:
            self._unnoted.clear()

    def _pause_s(self) -> float:
        """Return the pause until the next pass."""
        ended_us = self._state().get("ended_us")
        if not isinstance(ended_us, int):
            return 0.0
        since_s = (self._store.now_us() - ended_us) / 1e6
        return self._interval_s - since_s if since_s >= 0 else 0.0
