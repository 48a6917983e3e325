"""The version of Timestone and of what it stands on, as installed."""

from importlib.metadata import PackageNotFoundError, version


def timestone_version() -> str:
    """The installed version of this distribution; "unknown" when it runs from a folder that was never installed."""
    return package_version("timestone")


def package_version(name: str) -> str:
    """The installed version of a distribution, or "unknown"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
