"""Which offsets a damaged log once had and cannot prove any more, and why.

An offset is expected when a segment says that it had it (trailer, checkpoint, a later entry that holds), or when it
lies between two segments of one epoch: offsets are left out only where the epoch rises."""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from timestone.recovery.record_verifier import Proofs, UnprovenRange
from timestone.repair.offset_ranges import OffsetRanges
from timestone.repair.salvage_report import Loss
from timestone.repair.segment_fragments import IndexPages, Remains

_ANY_EPOCH = 1 << 63


class MissingOffsets:
    """The judgement over one log: its remains by base offset, and what each of them proves."""

    def __init__(self, remains: Mapping[int, Remains], heard: Mapping[int, Sequence[Proofs]]) -> None:
        self._remains = remains
        self._heard = heard
        self._bases = sorted(remains)
        self._gaps: dict[int, list[UnprovenRange]] = {}
        for base in self._bases:
            own = next((proofs for proofs in heard[base] if not proofs.source.aside), None)
            self._gaps[base] = sorted(own.unproven, key=lambda gap: gap.first) if own else []

    def losses(self, proven: OffsetRanges) -> Iterator[Loss]:
        """Runs of expected offsets that are not proven, in order, each with its reason."""
        expected = OffsetRanges((base, self.expected_end(base)) for base in self._bases)
        for base, following in self._neighbours():
            expected.add(base, following)
        for first, end in expected:
            for missing, missing_end in proven.missing(first, end):
                yield from self._explained(missing, missing_end)

    def expected_end(self, base: int) -> int:
        """The end of the offsets that a segment once had, as far as it says."""
        own = self._remains[base].own
        if own is None:
            return base
        checkpoint = own.checkpoint.entry_count if own.checkpoint else 0
        trailer = own.trailer.entry_count if own.trailer else 0
        heard = [proofs.end_offset for proofs in self._heard[base] if not proofs.source.aside]
        return max(base + max(checkpoint, trailer), *heard, base)

    def _neighbours(self) -> Iterator[tuple[int, int]]:
        """The base offsets between which none was left out."""
        placed = [base for base, one in self._remains.items() if one.has_index or one.has_segment]
        headers = [own.header if (own := self._remains[base].own) else None for base in placed]
        # An epoch that is not known lies between those before and behind it.
        low = list(accumulate((header.epoch if header else 0 for header in headers), max))
        high = list(accumulate((header.epoch if header else _ANY_EPOCH for header in headers[::-1]), min))[
            ::-1
        ]
        for number, (base, following) in enumerate(pairwise(placed)):
            if low[number] == high[number + 1]:
                yield base, following

    def _explained(self, first: int, end: int) -> Iterator[Loss]:
        """A run of missing offsets, cut where the reason changes."""
        while first < end:
            at = bisect.bisect_right(self._bases, first)
            limit = min(end, self._bases[at]) if at < len(self._bases) else end
            reason, limit = self._reason(self._bases[at - 1] if at else None, first, limit)
            yield Loss(first, limit, reason)
            first = limit

    def _reason(self, base: int | None, first: int, end: int) -> tuple[str, int]:
        """Why the offset `first` is missing, and up to where that is the reason."""
        remains = self._remains[base] if base is not None else None
        if base is None or remains is None or (remains.own and first >= self.expected_end(base)):
            return "it is in no file", end
        if remains.own is None:
            return "the index is missing", end
        if not remains.has_segment:
            return "the segment file is missing", end
        gaps = self._gaps[base]
        at = bisect.bisect_right(gaps, first, key=lambda gap: gap.first) - 1
        if at < 0 or first >= gaps[at].end:
            return "behind the end of the index", end
        durable = base + _watermark(remains.own)
        if first >= durable:
            return f"{gaps[at].reason}; never acknowledged as synced", min(gaps[at].end, end)
        return gaps[at].reason, min(gaps[at].end, end, durable)


def _watermark(own: IndexPages) -> int:
    """Records below this ordinal were durable."""
    if own.trailer is not None:
        return own.trailer.entry_count
    return own.checkpoint.entry_count if own.checkpoint else 0
