"""A dictionary is durable before its first use, survives a flipped bit, and is never overwritten."""

import errno
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.compressed.dictionaries import (
    decode_half,
    dictionary_numbers,
    encode_dictionary,
    read_dictionary,
    write_dictionary,
)
from timestone.disk.files import Files
from timestone.errors import UnsupportedFormat
from timestone.format import names

CONTENT = bytes(range(256)) * 20
LOG_ID = 77


def test_dictionary_is_read_back_by_its_number(tmp_path: Path) -> None:
    files = Files()
    write_dictionary(files, tmp_path, LOG_ID, 1, CONTENT)
    write_dictionary(files, tmp_path, LOG_ID, 12, b"another")
    assert dictionary_numbers(files, tmp_path) == [1, 12]
    assert read_dictionary(files, tmp_path, LOG_ID, 1) == (CONTENT, "")
    assert read_dictionary(files, tmp_path, LOG_ID, 12) == (b"another", "")
    assert read_dictionary(files, tmp_path, LOG_ID, 2) == (None, "2.dictionary is missing")


def test_every_flipped_bit_costs_one_of_two_copies(tmp_path: Path) -> None:
    files, path = Files(), names.dictionary_path(tmp_path, 1)
    whole = encode_dictionary(LOG_ID, 1, CONTENT)
    for at in (*range(0, 40), 3000, len(whole) // 2, len(whole) // 2 + 31, len(whole) // 2 + 3000):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        assert read_dictionary(files, tmp_path, LOG_ID, 1) == (
            CONTENT,
            "one of the two copies in 1.dictionary is damaged",
        )


@pytest.mark.parametrize("size", [0, 1, 31, 4096, 8000])
def test_dictionary_is_refused_when_its_file_is_truncated(tmp_path: Path, size: int) -> None:
    names.dictionary_path(tmp_path, 1).write_bytes(encode_dictionary(LOG_ID, 1, CONTENT)[:size])
    content, wrong = read_dictionary(Files(), tmp_path, LOG_ID, 1)
    assert content is None
    assert wrong == "both copies in 1.dictionary are damaged"


def test_dictionary_is_refused_when_it_names_another_log_or_number(tmp_path: Path) -> None:
    half = encode_dictionary(LOG_ID, 1, CONTENT)
    assert decode_half(half, tmp_path, LOG_ID, 1) == CONTENT
    assert decode_half(half, tmp_path, LOG_ID + 1, 1) is None
    assert decode_half(half, tmp_path, LOG_ID, 2) is None


def test_dictionary_of_a_newer_version_raises_unsupported_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone.compressed.dictionaries.FORMAT_VERSION", 2)
    half = encode_dictionary(LOG_ID, 1, CONTENT)
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat, match="format version 2"):
        decode_half(half, tmp_path, LOG_ID, 1)


def test_dictionary_is_flushed_before_it_is_renamed_and_used(tmp_path: Path) -> None:
    files = FaultyFiles()
    write_dictionary(files, tmp_path, LOG_ID, 1, CONTENT)
    assert [operation for operation, _ in files.calls] == [
        "unlink",
        "create",
        "pwrite",
        "fdatasync",
        "rename",
        "sync_directory",
    ]


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync"])
def test_dictionary_leaves_no_file_when_the_disk_refuses_it(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        write_dictionary(files, tmp_path, LOG_ID, 1, CONTENT)
    assert list(tmp_path.iterdir()) == []
    names.with_suffix(names.dictionary_path(tmp_path, 1), ".tmp").write_bytes(b"of one who was killed")
    write_dictionary(files, tmp_path, LOG_ID, 1, CONTENT)
    assert read_dictionary(files, tmp_path, LOG_ID, 1) == (CONTENT, "")
