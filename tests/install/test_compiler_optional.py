"""Timestone installs without a compiler, reports it, and works."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT, tracked_files

pytestmark = pytest.mark.slow

PROBE = """
import sys, tempfile
sys.meta_path = [f for f in sys.meta_path if 'editable' not in f'{f}{type(f)}'.lower()]
sys.path.insert(0, sys.argv[1])
import timestone
from timestone.kernel import loops
assert timestone.__file__.startswith(sys.argv[1])
with timestone.open(tempfile.mkdtemp()) as store:
    log = store.log("demo")
    log.append_many([b"one", b"two"], topic="a")
    assert [record.payload for record in log.reader()] == [b"one", b"two"]
print(loops.NAME, "because", loops.REASON)
"""


def test_install_without_a_compiler_works_and_reports_the_slow_path(tmp_path: Path) -> None:
    tree, unpacked = tmp_path / "tree", tmp_path / "unpacked"
    for path in tracked_files():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-v",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "dist",
        ".",
    ]
    environment = {**os.environ, "CC": "/bin/false"}
    built = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert built.returncode == 0, built.stdout
    assert "timestone.kernel._kernel is not compiled, Timestone will run on the slow path" in built.stdout
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith((".so", ".pyx", ".h"))] == []
        archive.extractall(unpacked)
    said = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, unpacked],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.strip() == "pure Python because no compiled kernel was built"
