"""Decoded frames are shared within a bound, and count in the memory budget."""

from pathlib import Path

import pytest

from timestone.compressed.dictionaries import write_dictionary
from timestone.compressed.frame_cache import DecodedFrames, MissingDictionary, new_owner
from timestone.compressed.zstd import FrameEncoder, train
from timestone.disk.files import Files


def test_least_recently_used_frames_make_room() -> None:
    frames, one, other = DecodedFrames(300), new_owner(), new_owner()
    assert one != other
    for number in range(3):
        frames.put(one, number, bytes(100))
    assert frames.get(one, 0) == bytes(100)
    frames.put(other, 0, b"x" * 100)
    assert frames.get(one, 1) is None
    assert frames.get(one, 0) == bytes(100)
    assert frames.get(other, 0) == b"x" * 100
    assert frames.used_bytes == 300


def test_frame_cache_reports_its_bytes_to_the_memory_budget() -> None:
    held: list[int] = []
    frames = DecodedFrames(250, held.append)
    frames.put(1, 0, bytes(100))
    frames.put(1, 0, bytes(120))
    frames.put(1, 1, bytes(100))
    frames.put(1, 2, bytes(60))
    assert sum(held) == frames.used_bytes == 160
    frames.put(1, 3, bytes(251))
    assert frames.get(1, 3) is None, "one that does not fit drives no other out"
    frames.clear()
    assert sum(held) == frames.used_bytes == 0
    assert frames.get(1, 1) is None


def test_decoder_of_a_dictionary_is_shared_while_in_use(tmp_path: Path) -> None:
    files, frames = Files(), DecodedFrames()
    content = train([b"sensor-%d is at %d degrees" % (n, n % 40) for n in range(3000)], 2048, 1)
    assert content is not None
    write_dictionary(files, tmp_path, 77, 1, content)
    decoder = frames.decoder(files, tmp_path, 77, 1)
    assert frames.decoder(files, tmp_path, 77, 1) is decoder
    assert frames.decoder(files, tmp_path, 77, 0) is not decoder
    raw = b"sensor-7 is at 30 degrees"
    assert decoder.decode(FrameEncoder(3, content).encode(raw), len(raw)) == raw
    with pytest.raises(MissingDictionary, match=r"2\.dictionary is missing"):
        frames.decoder(files, tmp_path, 77, 2)
