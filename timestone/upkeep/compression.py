"""Which sealed segments of a log are compressed, with what, and when.

What belongs here: the choice of segments and dictionaries, the pace, what is done about failures. The work itself is
`compressing.py`. Runs on the maintenance thread, a slice of a megabyte at a time, and rests as long as it has
worked, so that at most half a core goes into it; it takes no lock that an append or a read takes, but for the moment
in which the new files take the place of the old."""

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
from timestone.upkeep.segment_compression import CompressedCopy, NotProven
from timestone.upkeep.sliced_pass import SlicedPass, Slices
from timestone.writing.segment_swap import check_space

_LOGGER = logging.getLogger("timestone")
_WORTH = 0.9
"""A segment that would not get smaller than this part of itself stays as it is: reads of it would cost for nothing."""
_TRIED_FRAMES = 8
_DICTIONARY_BYTES = 64 * KIB
_DICTIONARY_SEGMENTS = 64
"""After so many segments the next dictionary is trained: data changes."""
_TRAINED_SEGMENTS = 8
_SAMPLE_BYTES = 100 * _DICTIONARY_BYTES
"""What zstd's authors recommend to train a dictionary of that size with."""
_SAMPLE_LEAST_BYTES = 32 * KIB
_PIECE_BYTES = KIB


class LogCompression:
    """Compresses the sealed segments of one log. Any thread may call; one works at a time."""

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        self._log = log
        self._store = store
        self._passes = SlicedPass(self._pass)
        self._left_alone: set[tuple[int, int]] = set()
        """Segments that were looked at and stay as they are while the store is open."""

    def expect(self) -> None:
        """There may be something to compress: look, in the background."""
        if self._log.config.compression is not Compression.NONE:
            self._store.maintenance.expect(self.run)

    def run(self) -> float | None:
        """The task for the background: one slice, and in how many seconds the next. Raises OSError."""
        began = time.monotonic()
        return None if self._passes.step() is None else time.monotonic() - began

    def apply(self) -> int:
        """Compress all that is due now, as fast as it goes; returns how many segments were. Raises OSError."""
        before = sum(map(_is_compressed, self._log.history.segments))
        self._passes.finish()
        return sum(map(_is_compressed, self._log.history.segments)) - before

    def close(self) -> None:
        """Leave what is half done, without a trace, and begin nothing any more."""
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
        """The oldest segment to compress; None when there is none, or nothing is to be."""
        log = self._log
        if log.failure is not None or log.config.compression is Compression.NONE:
            return None
        for segment in log.history.segments:
            if segment.trailer is None:
                return None
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
            copy = CompressedCopy(self._store.files, segment, encoder, number)
            try:
                yield from copy.slices()
                self._log.rewrites.replace(segment, copy.replacement, copy.trailer)
            finally:
                copy.close()
        self._log.compaction.expect()  # which may have waited for this

    # Dictionaries.

    def _dictionary(self) -> tuple[int, bytes | None]:
        """The number and the content of the dictionary to use now; 0 and None when there is none."""
        files, log = self._store.files, self._log
        newest = max(dictionary_numbers(files, log.folder), default=0)
        used = sum(_dictionary_of(segment) == newest for segment in log.history.segments)
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
        """Pieces of the newest sealed segments, taken evenly."""
        sealed = [segment for segment in self._log.history.segments if segment.trailer and segment.count]
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


def _dictionary_of(segment: Segment) -> int:
    frames = segment.trailer.frames if segment.trailer else None
    return frames.dictionary if frames else 0


def _key(segment: Segment) -> tuple[int, int]:
    return segment.base_offset, segment.trailer.generation if segment.trailer else 0


def _frames_of(files: Files, segment: Segment) -> list[bytes]:
    """Some of the frames that a segment would have, taken evenly; what the disk will not read is zeros there."""
    assert segment.trailer is not None
    count = frame_count(segment.trailer.segment_bytes, FRAME_BYTES)
    chosen = sorted({number * count // _TRIED_FRAMES for number in range(_TRIED_FRAMES)})
    with closing(RawFile(files, segment.segment_path, lambda count: None)) as file:
        return [file.read(number * FRAME_BYTES, FRAME_BYTES) for number in chosen]


def _encoded_bytes(encoder: FrameEncoder, frames: list[bytes]) -> int:
    return sum(len(encoder.encode(frame)) for frame in frames)
