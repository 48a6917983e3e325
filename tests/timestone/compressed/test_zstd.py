"""Frames are independent and verified, their sizes are checked before allocation, and dictionaries are found by id."""

import random
import threading

import pytest
import zstandard

from timestone.compressed.zstd import DamagedFrame, FrameDecoder, FrameEncoder, train

RAW = b"".join(b'{"device":%d,"value":%d}' % (n % 17, n * n) for n in range(4000))
SAMPLES = [b'{"device":"sensor-%d","temperature":%d.5,"state":"running"}' % (n, n % 30) for n in range(3000)]


def test_frame_decodes_to_its_input_and_has_size_and_checksum() -> None:
    frame = FrameEncoder(3).encode(RAW)
    assert len(frame) < len(RAW) / 3
    assert FrameDecoder().decode(frame, len(RAW)) == RAW
    facts = zstandard.get_frame_parameters(frame)
    assert (facts.content_size, facts.has_checksum, facts.dict_id) == (len(RAW), True, 0)


@pytest.mark.parametrize("frame", [b"", b"\0" * 40, b"not a frame at all", FrameEncoder(3).encode(RAW)[:-1]])
def test_decode_raises_damage_when_the_bytes_are_not_a_frame(frame: bytes) -> None:
    with pytest.raises(DamagedFrame):
        FrameDecoder().decode(frame, len(RAW))


def test_frame_of_another_size_is_refused_before_allocation() -> None:
    frame = bytearray(FrameEncoder(3).encode(RAW))
    with pytest.raises(DamagedFrame, match=f"does not state {len(RAW) + 1} bytes"):
        FrameDecoder().decode(frame, len(RAW) + 1)
    frame[5:9] = b"\xff\xff\xff\x7f"  # its header claims two gigabytes
    with pytest.raises(DamagedFrame):
        FrameDecoder().decode(frame, len(RAW))


def test_decode_returns_most_of_a_damaged_frame() -> None:
    raw = random.Random(1).randbytes(200_000)
    frame = bytearray(FrameEncoder(1).encode(raw))
    frame[100_000] ^= 1
    with pytest.raises(DamagedFrame, match="checksum"):
        FrameDecoder().decode(frame, len(raw))
    partly = FrameDecoder().decode_partly(frame, len(raw))
    assert len(partly) > 180_000
    assert sum(a != b for a, b in zip(partly, raw, strict=False)) == 1
    assert FrameDecoder().decode_partly(b"nothing", 10) == b""


def test_dictionary_makes_small_frames_smaller_and_is_needed_to_read_them() -> None:
    dictionary = train(SAMPLES, 4096, 7)
    assert dictionary is not None
    raw = b"".join(SAMPLES[5:9])
    frame = FrameEncoder(3, dictionary).encode(raw)
    assert len(frame) < len(FrameEncoder(3).encode(raw)) / 2
    assert zstandard.get_frame_parameters(frame).dict_id == 32768 + 7
    assert FrameDecoder(dictionary).decode(frame, len(raw)) == raw
    with pytest.raises(DamagedFrame, match="Dictionary"):
        FrameDecoder().decode(frame, len(raw))


def test_train_returns_no_dictionary_when_samples_are_too_few() -> None:
    assert train([b"one", b"two"], 4096, 1) is None


def test_one_decoder_serves_many_threads() -> None:
    encoder, decoder = FrameEncoder(3), FrameDecoder()
    frames = [encoder.encode(RAW[n:]) for n in range(8)]
    wrong: list[int] = []

    def decode(number: int) -> None:
        for _ in range(50):
            if decoder.decode(frames[number], len(RAW) - number) != RAW[number:]:
                wrong.append(number)

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
