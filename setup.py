"""Which folder becomes which import name, and what is compiled; all else about the distribution is in pyproject.toml.

A wheel must not own import names as common as `cli`, `bench`, `cluster` or `console`, so these folders are installed
under names of their own.

The man pages and the files for shell completion are made here from the commands themselves, which takes what the
commands import: that is in `build-system.requires`.

The kernels are optional: where they cannot be compiled the install continues without them, and `timestone --version`
says that it runs on the slow path. TIMESTONE_SANITIZE=1 builds them with an address sanitizer (`make sanitize`).
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

try:
    import Cython
except ImportError:  # only without build isolation: pyproject.toml asks for it
    Cython = None

FOLDERS = {
    "timestone": "timestone",
    "mqtt_front": "mqtt_front",
    "pyspark_timestone": "pyspark_timestone",
    "timestone_cli": "cli",
    "timestone_bench": "bench",
    "timestone_pipeline": "pipeline",
    "timestone_tiering": "tiering",
    "timestone_access": "access",
    "flight_front": "flight_front",
    "timestone_console": "console",
    "timestone_cluster": "cluster",
}

KERNELS = [
    Extension(
        "timestone.kernel._kernel",
        ["timestone/kernel/_kernel.pyx"],
        depends=["timestone/kernel/_crc32c.h", "timestone/kernel/_flush.h"],
        include_dirs=["timestone/kernel"],
        extra_compile_args=["-g0"],  # debug information would be nine tenths of the file
        optional=True,
    ),
    Extension(
        "mqtt_front.kernel._kernel",
        ["mqtt_front/kernel/_kernel.pyx"],
        depends=["mqtt_front/kernel/_sockets.h"],
        include_dirs=["mqtt_front/kernel"],
        extra_compile_args=["-g0"],
        optional=True,
    ),
]


class BuildKernels(build_ext):
    """Compiles what can be compiled, and says plainly what could not."""

    def build_extension(self, ext: Extension) -> None:
        self.cython_c_in_temp = True
        if os.environ.get("TIMESTONE_SANITIZE"):
            ext.extra_compile_args = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"]
            ext.extra_link_args = ["-fsanitize=address"]
        try:
            if Cython is None:
                raise RuntimeError("Cython is not installed")
            super().build_extension(ext)
        except Exception as error:
            # Also where it is the compiler or the headers of Python that are missing: the twin in Python does the same.
            message = f"*** {ext.name} is not compiled, Timestone will run on the slow path: {error}"
            self.announce(message, level=logging.WARNING)


class BuildShareFiles(build_py):
    """Copies the modules, and writes what goes below `share/` of the installation."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        self.run_command("egg_info")  # the settings of the MQTT front are found through its entry point
        written = Path(self.get_finalized_command("build").build_temp).resolve() / "share"
        path = [self.build_lib, self.get_finalized_command("egg_info").egg_base, os.environ.get("PYTHONPATH")]
        subprocess.run(
            [sys.executable, "-m", "timestone_cli.share_files", written],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            check=True,
        )
        files = [file for file in written.rglob("*") if file.is_file()]
        self.distribution.data_files = [
            (f"share/{file.parent.relative_to(written)}", [str(file)]) for file in sorted(files)
        ]


root = Path(__file__).parent
packages = [
    f"{name}.{inner}" if inner else name
    for name, folder in FOLDERS.items()
    for inner in ["", *find_packages(str(root / folder))]
]

setup(
    packages=packages,
    package_dir=FOLDERS,
    package_data={"": ["py.typed", "*.java"], "timestone_console": ["web/**/*"]},
    exclude_package_data={"": ["*.pyx", "*.h"]},
    ext_modules=KERNELS,
    cmdclass={"build_ext": BuildKernels, "build_py": BuildShareFiles},
)
