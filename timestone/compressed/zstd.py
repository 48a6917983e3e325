"""Zstandard for the engine: independent frames with content size and checksum, and dictionaries. The only module
that imports the library; `frame_table` gives the frames their meaning."""

from collections.abc import Sequence

import zstandard

from timestone.disk.files import Data

_PRIVATE_ID = 1 << 15
"""Dictionary ids below are reserved for the public registry; ours are this value plus the number of the dictionary."""
_PIECE_BYTES = 16 * 1024
"""Step of decoding a damaged frame: at most this much before the damage is not recovered."""
_TRAINING_SEGMENT_BYTES, _TRAINING_DMER_BYTES = 200, 8
"""Fixed, because the parameter search of the library takes ten times as long and gains little."""


class DamagedFrame(ValueError):
    """A frame does not decode to the expected bytes."""


class FrameEncoder:
    """Encoder of frames. For one thread at a time."""

    def __init__(self, level: int, dictionary: bytes | None = None) -> None:
        data = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._compressor = zstandard.ZstdCompressor(
            level, dict_data=data, write_checksum=True, write_content_size=True
        )

    def encode(self, raw: Data) -> bytes:
        """Encode one frame. Releases the interpreter lock."""
        return self._compressor.compress(raw)


class FrameDecoder:
    """Decoder of frames. Thread-safe: each call uses its own decompressor."""

    def __init__(self, dictionary: bytes | None = None) -> None:
        self._dictionary = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._idle: list[zstandard.ZstdDecompressor] = []

    def decode(self, frame: Data, raw_bytes: int) -> bytes:
        """Decode a frame of `raw_bytes`. Raises DamagedFrame."""
        decompressor = self._taken()
        try:
            # Before any allocation: a damaged size could ask for gigabytes.
            if zstandard.frame_content_size(frame) != raw_bytes:
                raise DamagedFrame(f"invalid size: its header does not state {raw_bytes} bytes")
            return decompressor.decompress(frame)
        except zstandard.ZstdError as error:
            raise DamagedFrame(str(error)) from error
        finally:
            self._idle.append(decompressor)

    def decode_partly(self, frame: Data, raw_bytes: int) -> bytes:
        """Return what a damaged frame decodes to before the damage, right or wrong; the checksums of records decide."""
        decoded = bytearray()
        # A separate one: an interrupted stream leaves its decompressor inside a frame.
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
    """Return a dictionary trained on samples; None if they have too little in common."""
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
