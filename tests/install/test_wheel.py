"""The wheel: built from a copy of the tree, opened, and imported without the source tree."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.house.tree import PACKAGES, ROOT, import_name, modules, tracked_files
from tests.support.ports import reserved_port
from timestone.kernel import loops
from timestone_cli.share_files import COMPLETION_FILES

pytestmark = pytest.mark.slow


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
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", built], check=True, timeout=60)
    with zipfile.ZipFile(built) as archive:
        yield archive


def top_level(wheel: zipfile.ZipFile) -> set[str]:
    return {
        name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name
    }


def test_wheel_has_only_the_expected_top_level_names(wheel: zipfile.ZipFile) -> None:
    assert top_level(wheel) == set(PACKAGES.values())


def test_wheel_has_every_module_and_the_typing_marker(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for module in modules():
        folder, *inner = module.parts
        assert "/".join([PACKAGES[folder], *inner]) in names
    assert {f"{package}/py.typed" for package in PACKAGES.values()} <= names


def test_wheel_has_the_licence_the_command_and_the_mqtt_front(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    said = wheel.read(entry_points).decode()
    assert "timestone = timestone_cli.main:main" in said
    assert "mqtt = mqtt_front.front:MqttFront" in said
    assert any(name.endswith("LICENSE") for name in wheel.namelist())


def test_wheel_has_man_pages_with_all_settings_and_completion_for_three_shells(
    wheel: zipfile.ZipFile,
) -> None:
    (serve,) = (name for name in wheel.namelist() if name.endswith("/data/share/man/man1/timestone-serve.1"))
    page = wheel.read(serve).decode()
    assert r"\-\-store\-recovery" in page and r"\-\-mqtt\-password\-file" in page
    for path in COMPLETION_FILES.values():
        assert any(name.endswith(f"/data/share/{path}") for name in wheel.namelist()), path


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel; the libraries are those of this one, so that no network is needed."""
    environment = tmp_path_factory.mktemp("installed")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    install = ["install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, *install, str(wheel.filename)],
        check=True,
        timeout=100,
    )
    # As a plain path: the editable install in it is not taken.
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def test_server_of_an_installed_wheel_stores_what_is_published(installed: Path, tmp_path: Path) -> None:
    command = str(installed / "bin" / "timestone")

    def run(*words: str) -> str:
        return subprocess.run(
            [command, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60, check=True
        ).stdout

    with (
        reserved_port() as port,
        Running("serve", "--mqtt", f"127.0.0.1:{port}", cwd=tmp_path, command=[command]) as server,
    ):
        server.lines_until("ready")
        run("pub", "-p", str(port), "-t", "site/1", "-m", "21.9", "-q", "1")
        assert run("read", "timestone-data", "mqtt", "--format", "text") == "21.9\n"
        assert server.stop()[0] == 0
    where = "import timestone, timestone_cli; print(timestone.__file__, timestone_cli.__file__)"
    printed = subprocess.check_output(
        [installed / "bin" / "python", "-P", "-c", where], text=True, cwd=tmp_path
    )
    assert all(path.startswith(str(installed)) for path in printed.split())
    assert (installed / "share" / "man" / "man1" / "timestone-serve.1").exists()


@pytest.mark.skipif(bool(loops.REASON), reason="no compiled kernel here")
def test_commands_that_cibuildwheel_runs_on_each_wheel_pass(tmp_path: Path) -> None:
    """The first one looked for a line that `timestone --version` does not print. They run on the tree, not on the wheel
    built above, which has no compiled kernel where Cython is not installed."""
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["test-command"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", " && ".join(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_source_distribution_has_the_sources_of_the_kernels_and_passes_twine(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path in tracked_files():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--sdist",
            "--no-isolation",
            "--skip-dependency-check",
            "--outdir",
            tmp_path / "dist",
            tree,
        ],
        check=True,
        timeout=100,
        stdout=subprocess.DEVNULL,
    )
    (built,) = (tmp_path / "dist").iterdir()
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", built], check=True, timeout=60)
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kernels = {str(path) for path in tracked_files() if path.suffix in (".pyx", ".h", ".java")}
    assert kernels | {"packaging/timestone.service", "LICENSE", "README.md"} <= names


def test_modules_of_the_wheel_import_each_other_under_their_installed_names(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """In the source tree `import cli` works by accident; in an installed wheel it must not be needed."""
    wheel.extractall(tmp_path)
    names = [import_name(module) for module in modules() if module.name != "__main__.py"]
    probe = "\n".join(
        [
            "import importlib, sys",
            # The editable install of the tree under test would otherwise be imported.
            "sys.meta_path = [f for f in sys.meta_path if 'editable' not in f'{f}{type(f)}'.lower()]",
            f"sys.path.insert(0, {str(tmp_path)!r})",
            f"for name in {names!r}: assert importlib.import_module(name).__file__.startswith({str(tmp_path)!r}), name",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", probe], cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
