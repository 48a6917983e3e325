"""Which offsets a batch reads, and how they are cut into tasks. Pure arithmetic on offsets; opens nothing.

Everything here depends on its arguments alone, so a batch that is planned again after a crash is cut again in the
same places.
"""

from collections.abc import Iterator, Mapping, Sequence

from pyspark_timestone.offsets import LogPartition, OffsetRange, Positions

Bounds = Sequence[tuple[int, int]]
"""[base, end) of each segment of a log, in order."""


def cut(
    ranges: Sequence[OffsetRange], bounds: Mapping[LogPartition, Bounds], *, largest: int, least_count: int
) -> list[OffsetRange]:
    """`ranges` in pieces that lie in one segment each, none over `largest` offsets, at least `least_count`
    altogether.

    A piece of one segment is one open file and one run of bytes. Gaps between segments, left by a power loss, are
    left out. Fewer pieces than `least_count` come out only when there are fewer offsets.
    """
    pieces = [piece for one in ranges for piece in within(one, bounds[one.log])]
    total = sum(piece.end - piece.start for piece in pieces)
    size = max(1, min(largest, total // max(least_count, 1)))
    return [part for piece in pieces for part in _parts(piece, size)]


def within(one: OffsetRange, bounds: Bounds) -> list[OffsetRange]:
    """The parts of a range that segments hold, one for each segment."""
    parts = [OffsetRange(one.log, max(one.start, base), min(one.end, end)) for base, end in bounds]
    return [part for part in parts if part.start < part.end]


def _parts(piece: OffsetRange, size: int) -> Iterator[OffsetRange]:
    """The piece in the fewest equal parts that are not larger than `size`."""
    length = piece.end - piece.start
    count = -(-length // size)
    for number in range(count):
        first, last = length * number // count, length * (number + 1) // count
        yield OffsetRange(piece.log, piece.start + first, piece.start + last)


def limited(start: Positions, end: Positions, limit: int | None) -> dict[LogPartition, int]:
    """`end`, brought nearer to `start` so that at most `limit` offsets lie between them.

    Each partition gets its share by how much it has waiting. As long as `limit` allows one offset for each of them,
    none gets nothing; below that they take turns. There is progress whenever something is waiting.
    """
    waiting = {key: end[key] - start[key] for key in sorted(end) if end[key] > start[key]}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(end)
    limit = max(limit, 1)
    turn = sum(start.values()) % len(waiting)
    keys = [*list(waiting)[turn:], *list(waiting)[:turn]]
    # One for each first, then the rest in proportion, then what rounding left over.
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
