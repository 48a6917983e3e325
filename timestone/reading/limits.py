"""The limits of a read: which records fit into them, and the parts of a batch joined until they are reached."""

from collections.abc import Callable, Sequence

import numpy as np

from timestone.errors import CorruptRecord, OffsetOutOfRange
from timestone.kernel.entries import ENTRY, Entries
from timestone.reading.batch import Batch, Columns
from timestone.reading.topic_mask import TopicMask
from timestone.segment import Run

_JOINED_BYTES_MOST = 1 << 31
"""Positions in the entries of a joined batch are u32, and a part may have twice as many bytes as its records."""


def filled(
    batch: Batch,
    stop: int,
    max_records: int,
    max_bytes: int,
    part: Callable[[int, int, int], tuple[Batch, bool]],
) -> Batch:
    """Return a batch with the records that follow it below `stop`, up to the limits. part: reads at most so many
    records and bytes from an offset on, and says whether more may follow. An error in it is left to the next read."""
    parts, records, size, goes_on = [batch], len(batch), batch.size_bytes, True
    max_bytes = min(max_bytes, _JOINED_BYTES_MOST)
    while goes_on and batch.next_offset < stop and records < max_records and size <= max_bytes:
        try:
            batch, goes_on = part(batch.next_offset, max_records - records, max_bytes - size)
        except (CorruptRecord, OffsetOutOfRange, OSError):
            break
        size += batch.size_bytes
        if size > max_bytes or not (batch or goes_on):  # an end without records is left to the next read, too
            break
        parts.append(batch)
        records += len(batch)
    return Batch.joined(parts) if len(parts) > 1 else parts[0]


def chosen_within(
    entries: Entries, choice: TopicMask, max_records: int, max_bytes: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the places of the chosen entries, within the limits; at least one if there is any."""
    places = np.flatnonzero(choice.mask(entries["topic"]))[:max_records]
    ends = np.cumsum(entries["length"][places], dtype=np.int64)
    return places[: max(1, int(np.searchsorted(ends, max_bytes, side="right")))].astype(np.int64)


def leaves_out(
    chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]", entries: Entries, choice: TopicMask
) -> bool:
    """Return whether the limits left out chosen records of these entries."""
    return len(chosen) > 0 and bool(choice.mask(entries["topic"][int(chosen[-1]) + 1 :]).any())


def joined_runs(runs: Sequence[Run]) -> Columns:
    """Return runs of one segment as one buffer, and entries with positions that fit it."""
    if len(runs) == 1:
        return runs[0].entries, runs[0].data, runs[0].position
    data = b"".join(run.data for run in runs)
    entries = np.empty(sum(len(run.entries) for run in runs), dtype=ENTRY)
    at, base = 0, 0
    for run in runs:
        piece = entries[at : at + len(run.entries)]
        piece[:] = run.entries
        piece["position"] = piece["position"].astype(np.int64) + (base - run.position)
        at, base = at + len(run.entries), base + len(run.data)
    return entries, data, 0
