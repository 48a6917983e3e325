"""What a user installs: built from a copy of the tree, opened, and imported where nothing else is seen."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, import_name, modules, tracked_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    tree = tmp_path_factory.mktemp("tree")
    for path in tracked_files():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    # Without build isolation nothing is downloaded: the test needs no network.
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            tree / "dist",
            tree,
        ],
        check=True,
        timeout=100,
    )
    (built,) = (tree / "dist").glob("timestone-*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


def top_level(wheel: zipfile.ZipFile) -> set[str]:
    return {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}


def test_wheel_owns_only_names_that_are_ours(wheel: zipfile.ZipFile) -> None:
    assert top_level(wheel) == set(PACKAGES.values())


def test_wheel_holds_every_module_and_says_that_it_is_typed(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for module in modules():
        folder, *inner = module.parts
        assert "/".join([PACKAGES[folder], *inner]) in names
    assert {f"{package}/py.typed" for package in PACKAGES.values()} <= names


def test_wheel_carries_the_licence_the_command_and_the_mqtt_front(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    said = wheel.read(entry_points).decode()
    assert "timestone = timestone_cli.main:main" in said
    assert "mqtt = mqtt_front.front:MqttFront" in said
    assert any(name.endswith("LICENSE") for name in wheel.namelist())


def test_modules_of_the_wheel_import_each_other_under_their_installed_names(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """In the source tree `import cli` works by accident; in an installed wheel it must not be needed."""
    wheel.extractall(tmp_path)
    names = [import_name(module) for module in modules() if module.name != "__main__.py"]
    probe = "\n".join(
        [
            "import importlib, sys",
            # The editable install of the tree under test would otherwise answer first.
            "sys.meta_path = [f for f in sys.meta_path if 'editable' not in f'{f}{type(f)}'.lower()]",
            f"sys.path.insert(0, {str(tmp_path)!r})",
            f"for name in {names!r}: assert importlib.import_module(name).__file__.startswith({str(tmp_path)!r}), name",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", probe], cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
