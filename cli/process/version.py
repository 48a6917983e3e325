"""The installed version of Timestone, and which kernel does its work on each record."""

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


def kernel_line() -> str:
    """Return which kernel runs, and why when it is the slow one."""
    return f"{loops.NAME}: {loops.REASON}" if loops.REASON else "compiled"


def version_lines() -> list[str]:
    """Return what `timestone --version` prints."""
    return [f"timestone {timestone_version()}", f"kernel {kernel_line()}"]
