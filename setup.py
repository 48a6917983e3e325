"""Which folder becomes which import name; everything else about the distribution is in pyproject.toml.

A wheel must not own import names as common as `cli`, `bench` or `pipeline`, so these three folders are installed under
names of their own. Compiled extensions, once there are any, are listed here with `optional=True`: without a compiler
the install goes on and the pure Python twins do the work.
"""

from pathlib import Path

from setuptools import find_packages, setup

FOLDERS = {
    "timestone": "timestone",
    "mqtt_front": "mqtt_front",
    "pyspark_timestone": "pyspark_timestone",
    "timestone_cli": "cli",
    "timestone_bench": "bench",
    "timestone_pipeline": "pipeline",
}

root = Path(__file__).parent
packages = [
    f"{name}.{inner}" if inner else name
    for name, folder in FOLDERS.items()
    for inner in ["", *find_packages(str(root / folder))]
]

setup(
    packages=packages,
    package_dir=FOLDERS,
    package_data={name: ["py.typed"] for name in FOLDERS},
    ext_modules=[],
)
