"""Cache shared by all readers of compressed segments of a store: recently decoded frames up to a limit, and one
decoder for each dictionary. Knows no file format."""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

from timestone.compressed.dictionaries import read_dictionary
from timestone.compressed.zstd import FrameDecoder
from timestone.disk.files import Files

CACHED_BYTES = 8 << 20
"""Maximum bytes of decoded frames: 32 of the usual size, for as many readers at different positions."""
_owners = itertools.count(1)


def new_owner() -> int:
    """Return a new key for an open file, which separates its frames from those of others."""
    return next(_owners)


class MissingDictionary(ValueError):
    """The dictionary of a segment is missing or damaged, so none of its frames can be decoded."""


class DecodedFrames:
    """Least-recently-used cache of frames. Thread-safe."""

    def __init__(
        self, limit_bytes: int = CACHED_BYTES, hold: Callable[[int], None] = lambda more_bytes: None
    ) -> None:
        """hold: called with each change of the bytes in memory, for an overall memory budget."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._hold = hold
        self._frames: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._decoders: WeakValueDictionary[tuple[Path, int], FrameDecoder] = WeakValueDictionary()
        self._plain = FrameDecoder()
        self._lock = threading.Lock()

    def get(self, owner: int, number: int) -> bytes | None:
        """Return a cached frame; None if it is not in memory."""
        with self._lock:
            raw = self._frames.get((owner, number))
            if raw is not None:
                self._frames.move_to_end((owner, number))
            return raw

    def put(self, owner: int, number: int, raw: bytes) -> None:
        """Cache a frame, if it fits at all."""
        if len(raw) > self.limit_bytes:
            return
        with self._lock:
            change = len(raw) - len(self._frames.pop((owner, number), b""))
            self._frames[owner, number] = raw
            while self.used_bytes + change > self.limit_bytes:
                change -= len(self._frames.popitem(last=False)[1])
            self.used_bytes += change
        self._hold(change)

    def clear(self) -> None:
        """Drop all frames."""
        with self._lock:
            change, self.used_bytes = -self.used_bytes, 0
            self._frames.clear()
        self._hold(change)

    def decoder(self, files: Files, folder: Path, log_id: int, dictionary: int) -> FrameDecoder:
        """Return the decoder for frames made with a dictionary; 0 for none. Raises MissingDictionary,
        UnsupportedFormat, OSError."""
        if dictionary == 0:
            return self._plain
        decoder = self._decoders.get((folder, dictionary))
        if decoder is None:
            content, wrong = read_dictionary(files, folder, log_id, dictionary)
            if content is None:
                raise MissingDictionary(wrong)
            decoder = self._decoders.setdefault((folder, dictionary), FrameDecoder(content))
        return decoder
