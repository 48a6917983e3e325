"""Zstandard as the engine uses it: frames that stand alone, with their size and a checksum in them, and dictionaries.

The one place that knows the library. What frames mean and where they lie is `frames.py`'s business."""

from collections.abc import Sequence

import zstandard

from timestone.disk.files import Data

_PRIVATE_ID = 1 << 15
"""Dictionary ids below are the public registry's; ours are this and the dictionary's number."""
_PIECE_BYTES = 16 * 1024
"""What is asked of a damaged frame at a time: so much may be missing in front of the place that does not decode."""
_TRAINING_SEGMENT_BYTES, _TRAINING_DMER_BYTES = 200, 8
"""Fixed, because having the library search for the best takes ten times as long and gains little."""


class DamagedFrame(ValueError):
    """A frame does not decode to what it should."""


class FrameEncoder:
    """Makes frames. Used by one thread at a time."""

    def __init__(self, level: int, dictionary: bytes | None = None) -> None:
        data = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._compressor = zstandard.ZstdCompressor(
            level, dict_data=data, write_checksum=True, write_content_size=True
        )

    def encode(self, raw: Data) -> bytes:
        """One frame. Lets other threads run meanwhile."""
        return self._compressor.compress(raw)


class FrameDecoder:
    """Reads frames. Any thread may call: each call takes a decompressor of its own."""

    def __init__(self, dictionary: bytes | None = None) -> None:
        self._dictionary = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._idle: list[zstandard.ZstdDecompressor] = []

    def decode(self, frame: Data, raw_bytes: int) -> bytes:
        """The bytes of a frame, which are that many. Raises DamagedFrame."""
        decompressor = self._taken()
        try:
            # Before anything is allocated: a damaged size could ask for gigabytes.
            if zstandard.frame_content_size(frame) != raw_bytes:
                raise DamagedFrame(f"it does not say that it holds {raw_bytes} bytes")
            return decompressor.decompress(frame)
        except zstandard.ZstdError as error:
            raise DamagedFrame(str(error)) from error
        finally:
            self._idle.append(decompressor)

    def decode_partly(self, frame: Data, raw_bytes: int) -> bytes:
        """What comes out of a damaged frame before it breaks, right or wrong: the records' checksums tell."""
        decoded = bytearray()
        # One of its own: a stream that breaks off leaves its decompressor in the middle of a frame.
        reader = zstandard.ZstdDecompressor(self._dictionary).stream_reader(bytes(frame))
        try:
            while len(decoded) < raw_bytes and (piece := reader.read(_PIECE_BYTES)):
                decoded += piece
        except zstandard.ZstdError:
            pass
        return bytes(decoded[:raw_bytes])

    def _taken(self) -> zstandard.ZstdDecompressor:
        try:
            return self._idle.pop()
        except IndexError:
            return zstandard.ZstdDecompressor(self._dictionary)


def train(samples: Sequence[bytes], size_bytes: int, number: int) -> bytes | None:
    """A dictionary made of what samples have in common; None when there is too little of that."""
    try:
        trained = zstandard.train_dictionary(
            size_bytes,
            list(samples),
            k=_TRAINING_SEGMENT_BYTES,
            d=_TRAINING_DMER_BYTES,
            dict_id=_PRIVATE_ID + number,
        )
    except zstandard.ZstdError:
        return None
    return trained.as_bytes()
