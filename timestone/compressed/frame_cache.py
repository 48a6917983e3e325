"""What all readers of compressed segments in a store share: recently decoded frames, within a bound, and one decoder
for each dictionary. It knows no format."""

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
"""The most decoded frames in memory: 32 of the usual size, for as many readers in different places."""
_owners = itertools.count(1)


def new_owner() -> int:
    """A number for one open file, so that its frames are told from those of all others."""
    return next(_owners)


class MissingDictionary(ValueError):
    """The dictionary of a segment is not there or damaged: none of its frames can be decoded."""


class DecodedFrames:
    """The least recently used frames make room. Thread-safe."""

    def __init__(
        self, limit_bytes: int = CACHED_BYTES, hold: Callable[[int], None] = lambda more_bytes: None
    ) -> None:
        """hold: told of each change of the bytes in memory, by whoever has a budget for them."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._hold = hold
        self._frames: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._decoders: WeakValueDictionary[tuple[Path, int], FrameDecoder] = WeakValueDictionary()
        self._plain = FrameDecoder()
        self._lock = threading.Lock()

    def get(self, owner: int, number: int) -> bytes | None:
        """A frame that is in memory."""
        with self._lock:
            raw = self._frames.get((owner, number))
            if raw is not None:
                self._frames.move_to_end((owner, number))
            return raw

    def put(self, owner: int, number: int, raw: bytes) -> None:
        """Keep a frame, if it fits at all."""
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
        """Forget all frames."""
        with self._lock:
            change, self.used_bytes = -self.used_bytes, 0
            self._frames.clear()
        self._hold(change)

    def decoder(self, files: Files, folder: Path, log_id: int, dictionary: int) -> FrameDecoder:
        """The decoder for frames made with a dictionary; 0 for none.

        Raises MissingDictionary, UnsupportedFormat, OSError."""
        if dictionary == 0:
            return self._plain
        decoder = self._decoders.get((folder, dictionary))
        if decoder is None:
            content, wrong = read_dictionary(files, folder, log_id, dictionary)
            if content is None:
                raise MissingDictionary(wrong)
            decoder = self._decoders.setdefault((folder, dictionary), FrameDecoder(content))
        return decoder
