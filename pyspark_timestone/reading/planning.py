"""Planning of a batch: its offsets, and their division into tasks. Pure arithmetic on offsets; opens nothing. All
results depend on the arguments alone, so a batch that is planned again after a crash is divided in the same places."""

import heapq
from collections.abc import Iterator, Mapping, Sequence

from pyspark_timestone.offsets import LogPartition, OffsetRange, Positions

Bounds = Sequence[tuple[int, int]]
"""[base, end) of each segment of a log, in order."""
SMALL_RECORDS = 512
"""Segments that meet are read by one task as long as they have no more together: starting a task takes longer than
reading them. Few, because records may be large."""


def cut(
    ranges: Sequence[OffsetRange], bounds: Mapping[LogPartition, Bounds], *, largest: int, least_count: int
) -> list[OffsetRange]:
    """Return `ranges` in pieces, none over `largest` offsets, at least `least_count` altogether.

    A piece is in one segment, that is, one open file and one run of bytes, or in several small ones that meet. Gaps
    between segments, left by a power loss, are left out. More than `least_count` come out only when segments or
    `largest` need more, fewer only when there are fewer offsets.
    """
    small = min(SMALL_RECORDS, largest)
    pieces = [piece for one in ranges for piece in _joined(within(one, bounds[one.log]), small)]
    lengths = [piece.end - piece.start for piece in pieces]
    counts = [-(-length // largest) for length in lengths]
    # The piece whose parts are the longest gets one more, until there are enough.
    parts = [
        (-length / count, number) for number, (length, count) in enumerate(zip(lengths, counts, strict=True))
    ]
    heapq.heapify(parts)
    for _ in range(min(least_count, sum(lengths)) - sum(counts)):
        number = parts[0][1]
        counts[number] += 1
        heapq.heapreplace(parts, (-lengths[number] / counts[number], number))
    return [part for piece, count in zip(pieces, counts, strict=True) for part in _parts(piece, count)]


def within(one: OffsetRange, bounds: Bounds) -> list[OffsetRange]:
    """Return the parts of a range that segments hold, one for each segment."""
    parts = [OffsetRange(one.log, max(one.start, base), min(one.end, end)) for base, end in bounds]
    return [part for part in parts if part.start < part.end]


def _joined(pieces: Sequence[OffsetRange], small: int) -> list[OffsetRange]:
    """The pieces of a log, with those that meet in one as long as it has at most `small` offsets."""
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].end == piece.start and piece.end - joined[-1].start <= small:
            piece = OffsetRange(piece.log, joined.pop().start, piece.end)
        joined.append(piece)
    return joined


def _parts(piece: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """The piece in `count` equal parts."""
    length = piece.end - piece.start
    for number in range(count):
        first, last = length * number // count, length * (number + 1) // count
        yield OffsetRange(piece.log, piece.start + first, piece.start + last)


def limited(start: Positions, end: Positions, limit: int | None) -> dict[LogPartition, int]:
    """Return `end`, moved towards `start` so that at most `limit` offsets are between them.

    Each partition gets a share in proportion to its waiting records. While `limit` allows one offset for each of them,
    each gets at least one; below that they take turns. There is progress whenever something is waiting."""
    waiting = {key: end[key] - start[key] for key in sorted(end) if end[key] > start[key]}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(end)
    limit = max(limit, 1)
    turn = sum(start.values()) % len(waiting)
    keys = [*list(waiting)[turn:], *list(waiting)[:turn]]
    # One for each first, then the rest in proportion, then the remainder of rounding.
    share = {key: 1 if number < limit else 0 for number, key in enumerate(keys)}
    spare, rest = limit - sum(share.values()), total - sum(share.values())
    for key in keys:
        share[key] += spare * (waiting[key] - share[key]) // rest if rest and share[key] else 0
    left = limit - sum(share.values())
    for key in sorted(keys, key=lambda key: share[key] - waiting[key]):
        more = min(left, waiting[key] - share[key])
        share[key] += more
        left -= more
    return {key: start[key] + share[key] if key in share else position for key, position in end.items()}
