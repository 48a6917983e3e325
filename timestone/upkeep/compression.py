"""Compression of sealed segments: chooses segments and dictionaries, sets the pace, and handles failures.
`segment_compression.py` rewrites a segment.

Runs on the maintenance thread in slices of a megabyte and rests as long as it works, so it takes at most half a
core. It takes no lock of appends or reads, except for the moment in which the new files replace the old."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing

from timestone.compressed.dictionaries import dictionary_numbers, read_dictionary, write_dictionary
from timestone.compressed.frame_table import FRAME_BYTES, frame_count
from timestone.compressed.zstd import FrameEncoder, train
from timestone.config import KIB, Compression
from timestone.disk.files import Files
from timestone.errors import CorruptRecord
from timestone.recovery.record_verifier import RawFile
from timestone.segment import Segment
from timestone.upkeep.host import UpkeptLog, UpkeptStore
from timestone.upkeep.segment_check import NotProven
from timestone.upkeep.segment_compression import CompressedCopy
from timestone.upkeep.sliced_pass import SlicedPass, Slices
from timestone.writing.segment_swap import check_space

_LOGGER = logging.getLogger("timestone")
_WORTH = 0.9
"""A segment that would not shrink to this share stays uncompressed: slower reads would gain nothing."""
_TRIED_FRAMES = 8
_DICTIONARY_BYTES = 64 * KIB
_DICTIONARY_SEGMENTS = 64
"""Number of segments after which a new dictionary is trained, because data changes."""
_TRAINED_SEGMENTS = 8
_SAMPLE_BYTES = 100 * _DICTIONARY_BYTES
"""Size of the samples that the authors of zstd recommend for a dictionary of that size."""
_SAMPLE_LEAST_BYTES = 32 * KIB
_PIECE_BYTES = KIB


class LogCompression:
    """Compression of the sealed segments of one log. Any thread may call; one works at a time."""

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        self._log = log
        self._store = store
        self._passes = SlicedPass(self._pass)
        self._left_alone: set[tuple[int, int]] = set()
        """Segments that stay uncompressed while the store is open."""

    def expect(self) -> None:
        """Schedule a check in the background."""
        if self._log.config.compression is not Compression.NONE:
            self._store.maintenance.expect(self.run)

    def run(self) -> float | None:
        """Run one slice. Return the seconds until the next; None to stop. Raises OSError."""
        began = time.monotonic()
        return None if self._passes.step() is None else time.monotonic() - began

    def apply(self) -> int:
        """Compress everything due now, unthrottled. Return the number of segments. Raises OSError."""
        before = sum(map(_is_compressed, self._log.segment_list.segments))
        self._passes.finish()
        return sum(map(_is_compressed, self._log.segment_list.segments)) - before

    def close(self) -> None:
        """Discard the unfinished work and begin no other."""
        self._passes.close()

    def _pass(self) -> Slices:
        while (segment := self._next()) is not None:
            try:
                yield from self._compress(segment)
            except FileNotFoundError:
                if self._log.rewrites.is_current(segment):
                    raise
            except (NotProven, CorruptRecord) as error:
                self._left_alone.add(_key(segment))
                _LOGGER.error("%s stays as it is: %s", segment.segment_path, error)

    def _next(self) -> Segment | None:
        """Return the oldest segment to compress; None if there is none."""
        log = self._log
        if log.failure is not None or log.config.compression is Compression.NONE:
            return None
        for segment in log.rewrites.segments():
            assert segment.trailer is not None
            wanted = segment.trailer.segment_bytes > 0 and not _is_compressed(segment)
            wanted = wanted and not log.rewrites.is_claimed(segment)
            if wanted and _key(segment) not in self._left_alone:
                return segment
        return None

    def _compress(self, segment: Segment) -> Iterator[int]:
        assert segment.trailer is not None
        added_bytes = segment.trailer.stored_bytes + segment.trailer.file_bytes
        check_space(self._store.files, segment.segment_path, added_bytes, self._store.config.min_free_bytes)
        number, content = self._dictionary() if self._log.config.compression_dictionary else (0, None)
        samples = _frames_of(self._store.files, segment)
        encoder = FrameEncoder(self._log.config.compression_level)
        size_bytes = _encoded_bytes(encoder, samples)
        if content is not None:
            other = FrameEncoder(self._log.config.compression_level, content)
            if (other_bytes := _encoded_bytes(other, samples)) < size_bytes:
                encoder, size_bytes = other, other_bytes
            else:
                number = 0
        yield len(samples) * FRAME_BYTES
        if size_bytes > _WORTH * sum(map(len, samples)):
            self._left_alone.add(_key(segment))
            return
        with self._log.rewrites.claim(segment) as free:
            if not free:
                return
            with closing(CompressedCopy(self._store.files, segment, encoder, number)) as copy:
                yield from copy.slices()
                self._log.rewrites.replace(segment, copy.replacement, copy.trailer)
        self._log.compaction.expect()  # compaction may have waited for this

    # Dictionaries.

    def _dictionary(self) -> tuple[int, bytes | None]:
        """Return number and content of the dictionary to use; 0 and None if there is none."""
        files, log = self._store.files, self._log
        newest = max(dictionary_numbers(files, log.folder), default=0)
        layouts = [one.trailer.frames for one in log.segment_list.segments if one.trailer]
        used = sum(one is not None and one.dictionary == newest for one in layouts)
        if newest and used < _DICTIONARY_SEGMENTS:
            content, wrong = read_dictionary(files, log.folder, log.id, newest)
            if wrong:
                _LOGGER.error("%s: %s", log.folder, wrong)
            if content is not None:
                return newest, content
        samples = self._samples()
        size_bytes = sum(map(len, samples))
        if size_bytes < _SAMPLE_LEAST_BYTES:
            return 0, None
        content = train(samples, min(_DICTIONARY_BYTES, size_bytes // 8), newest + 1)
        if content is None:
            return 0, None
        write_dictionary(files, log.folder, log.id, newest + 1, content)
        return newest + 1, content

    def _samples(self) -> list[bytes]:
        """Return evenly spaced pieces of the newest sealed segments."""
        sealed = [segment for segment in self._log.segment_list.segments if segment.trailer and segment.count]
        sealed = sealed[-_TRAINED_SEGMENTS:]
        samples: list[bytes] = []
        for segment in sealed:
            reads = max(1, _SAMPLE_BYTES // len(sealed) // (64 * KIB))
            for place in range(reads):
                try:
                    run = segment.read(
                        place * segment.count // reads,
                        max_records=max(1, segment.count // reads),
                        max_bytes=64 * KIB,
                    )
                except CorruptRecord:
                    continue
                samples += [run.data[at : at + _PIECE_BYTES] for at in range(0, len(run.data), _PIECE_BYTES)]
        return samples


def _is_compressed(segment: Segment) -> bool:
    return segment.trailer is not None and segment.trailer.frames is not None


def _key(segment: Segment) -> tuple[int, int]:
    return segment.base_offset, segment.trailer.generation if segment.trailer else 0


def _frames_of(files: Files, segment: Segment) -> list[bytes]:
    """Return evenly spaced frames of a segment; unreadable bytes are zeros."""
    assert segment.trailer is not None
    count = frame_count(segment.trailer.segment_bytes, FRAME_BYTES)
    chosen = sorted({number * count // _TRIED_FRAMES for number in range(_TRIED_FRAMES)})
    with closing(RawFile(files, segment.segment_path, lambda count: None)) as file:
        return [file.read(number * FRAME_BYTES, FRAME_BYTES) for number in chosen]


def _encoded_bytes(encoder: FrameEncoder, frames: list[bytes]) -> int:
    return sum(len(encoder.encode(frame)) for frame in frames)
