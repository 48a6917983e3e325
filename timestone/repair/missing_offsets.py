"""Offsets that a damaged log once had and that are not proven any more, with the reason. An offset is expected if a
segment states it (by trailer, checkpoint, or a later valid entry), or if it lies between two segments of one epoch:
offsets are skipped only where the epoch changes."""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from timestone.recovery.record_verifier import Proofs, UnprovenRange
from timestone.recovery.segment_report import durable_count
from timestone.repair.offset_ranges import OffsetRanges
from timestone.repair.salvage_report import Loss
from timestone.repair.segment_fragments import SegmentFragments

_ANY_EPOCH = 1 << 63


class MissingOffsets:
    """Expected and missing offsets of one log, from its fragments and proofs by base offset."""

    def __init__(
        self, fragments: Mapping[int, SegmentFragments], heard: Mapping[int, Sequence[Proofs]]
    ) -> None:
        self._remains = fragments
        self._heard = heard
        self._bases = sorted(fragments)
        self._gaps: dict[int, list[UnprovenRange]] = {}
        for base in self._bases:
            own = next((proofs for proofs in heard[base] if not proofs.source.aside), None)
            self._gaps[base] = sorted(own.unproven, key=lambda gap: gap.first) if own else []

    def losses(self, proven: OffsetRanges) -> Iterator[Loss]:
        """Yield the ranges of expected offsets that are not proven, in order, each with its reason."""
        expected = OffsetRanges((base, self.expected_end(base)) for base in self._bases)
        for base, following in self._neighbours():
            expected.add(base, following)
        for first, end in expected:
            for missing, missing_end in proven.missing(first, end):
                yield from self._explained(missing, missing_end)

    def expected_end(self, base: int) -> int:
        """Return the end of the offsets that a segment once had, by its files."""
        own = self._remains[base].own
        if own is None:
            return base
        checkpoint = own.checkpoint.entry_count if own.checkpoint else 0
        trailer = own.trailer.entry_count if own.trailer else 0
        heard = [proofs.end_offset for proofs in self._heard[base] if not proofs.source.aside]
        return max(base + max(checkpoint, trailer), *heard, base)

    def _neighbours(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of base offsets between which no offset was skipped."""
        placed = [base for base, one in self._remains.items() if one.has_index or one.has_segment]
        headers = [own.header if (own := self._remains[base].own) else None for base in placed]
        # An unknown epoch lies between those before and after it.
        low = list(accumulate((header.epoch if header else 0 for header in headers), max))
        high = list(accumulate((header.epoch if header else _ANY_EPOCH for header in headers[::-1]), min))[
            ::-1
        ]
        for number, (base, following) in enumerate(pairwise(placed)):
            if low[number] == high[number + 1]:
                yield base, following

    def _explained(self, first: int, end: int) -> Iterator[Loss]:
        """Yield a range of missing offsets, split where the reason changes."""
        while first < end:
            at = bisect.bisect_right(self._bases, first)
            limit = min(end, self._bases[at]) if at < len(self._bases) else end
            reason, limit = self._reason(self._bases[at - 1] if at else None, first, limit)
            yield Loss(first, limit, reason)
            first = limit

    def _reason(self, base: int | None, first: int, end: int) -> tuple[str, int]:
        """Return why the offset `first` is missing, and the end of the range with that reason."""
        fragments = self._remains[base] if base is not None else None
        if base is None or fragments is None or (fragments.own and first >= self.expected_end(base)):
            return "it is in no file", end
        if fragments.own is None:
            return "the index is missing", end
        if not fragments.has_segment:
            return "the segment file is missing", end
        gaps = self._gaps[base]
        at = bisect.bisect_right(gaps, first, key=lambda gap: gap.first) - 1
        if at < 0 or first >= gaps[at].end:
            return "behind the end of the index", end
        durable = base + durable_count(fragments.own.trailer, fragments.own.checkpoint)
        if first >= durable:
            return f"{gaps[at].reason}; never acknowledged as synced", min(gaps[at].end, end)
        return gaps[at].reason, min(gaps[at].end, end, durable)
