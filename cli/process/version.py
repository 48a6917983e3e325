"""The installed version of Timestone, and which kernels do its work on each record and each MQTT packet."""

import importlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from timestone.kernel import loops


def timestone_version() -> str:
    """Return the installed version of this distribution; "unknown" in a folder that was never installed."""
    return package_version("timestone")


def package_version(name: str) -> str:
    """Return the installed version of a distribution, or "unknown"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def kernels_line() -> str:
    """Return which kernels run, and why if one is the slow one."""
    kernels = _kernels()
    if len(set(kernels.values())) == 1:
        return f"{' and '.join(kernels)} kernel {kernels['engine']}"
    return ", ".join(f"{name} kernel {kernel}" for name, kernel in kernels.items())


def _kernels() -> dict[str, str]:
    """Return the kernel of the engine, and that of the MQTT front if it is installed."""
    kernels = {"engine": loops.named(loops.REASON)}
    with suppress(ImportError):
        mqtt = importlib.import_module("mqtt_front.kernel.loops")
        kernels["MQTT"] = loops.named(mqtt.REASON)
    return kernels


def version_lines() -> list[str]:
    """Return what `timestone --version` prints."""
    return [
        f"timestone {timestone_version()}",
        *(f"{name} kernel {kernel}" for name, kernel in _kernels().items()),
    ]
