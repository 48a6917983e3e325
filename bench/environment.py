"""The environment of a measurement: machine, file system, disk, versions, load.

The facts are read from the places where Linux publishes them; those that another system does not have are left out.
"""

import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mqtt_front.kernel import loops as mqtt_kernel
from timestone.kernel import loops as kernel

_FSYNC_PROBES = 20
_PACKAGES = ("timestone", "numpy", "crc32c", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine at the begin of the measurement."""

    system: str
    processor: str
    cpu_count: int
    memory_bytes: int
    load_average: float
    filesystem: str
    device: str
    free_bytes: int
    fdatasync_median_us: float
    """Median of 20 probes, each a 4 KiB write and its fdatasync."""
    python: str
    versions: dict[str, str]
    kernel: str
    """Implementation of the engine's per-record loops: "native", or "pure Python"."""
    mqtt_kernel: str
    """Implementation of the MQTT front's per-packet loops, in the same words."""

    def lines(self) -> list[str]:
        """Return the lines for the head of a report."""
        packages = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return [
            f"{self.system}, {self.processor}, {self.cpu_count} CPUs, {self.memory_bytes / 2**30:.1f} GiB memory, "
            f"load average {self.load_average:.2f}",
            f"{self.filesystem} on {self.device}, {self.free_bytes / 2**30:.1f} GiB free, "
            f"fdatasync of 4 KiB {_microseconds(self.fdatasync_median_us)} (median of {_FSYNC_PROBES})",
            f"{self.python}, {packages}, {self.kernel} kernel, {self.mqtt_kernel} MQTT kernel",
        ]

    def warnings(self, volume_bytes: int) -> list[str]:
        """Return reasons why figures taken here, with rows of `volume_bytes`, may mislead."""
        found = []
        share = volume_bytes / self.memory_bytes
        if share < 0.1:
            found.append(
                f"a row moves {volume_bytes / 1e6:,.0f} MB, {share:.1%} of the memory: all but the fdatasync columns "
                "measure the page cache, not the disk (--count raises it)"
            )
        if self.load_average > self.cpu_count:
            found.append(
                f"the load average is {self.load_average:.2f} on {self.cpu_count} CPUs: other processes are running"
            )
        if self.filesystem in ("tmpfs", "ramfs") or self.fdatasync_median_us < 20:
            found.append(f"fdatasync takes {self.fdatasync_median_us:.0f} us here: nothing reaches a disk")
        if kernel.REASON:
            found.append(f"the per-record work runs in Python, because {kernel.REASON}")
        if mqtt_kernel.REASON:
            found.append(f"the work on MQTT packets runs in Python, because {mqtt_kernel.REASON}")
        return found


def _microseconds(value: float) -> str:
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} us"


def probe_environment(directory: Path) -> Environment:
    """Examine this machine and the file system that holds `directory`, which has to exist."""
    filesystem, device = _mount(directory)
    space = os.statvfs(directory)
    return Environment(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load_average=os.getloadavg()[0],
        filesystem=filesystem,
        device=device,
        free_bytes=space.f_bavail * space.f_frsize,
        fdatasync_median_us=_fdatasync_median_us(directory),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={name: _version(name) for name in _PACKAGES},
        kernel=kernel.NAME,
        mqtt_kernel=mqtt_kernel.NAME,
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _mount(directory: Path) -> tuple[str, str]:
    """Return the type and the device of the file system that holds `directory`."""
    place = directory.resolve()
    best, found = -1, ("unknown file system", "unknown device")
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        before, _, after = line.partition(" - ")
        # Blanks in a mount point are written as octal escapes.
        mount_point = Path(before.split(" ")[4].encode().decode("unicode_escape"))
        if place.is_relative_to(mount_point) and len(mount_point.parts) >= best:
            best = len(mount_point.parts)
            kind, device = after.split(" ")[:2]
            found = (kind, device)
    return found


def _fdatasync_median_us(directory: Path) -> float:
    block = os.urandom(4096)
    times_us = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for number in range(_FSYNC_PROBES):
            os.pwrite(file.fileno(), block, number * len(block))
            start = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times_us.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times_us)
