import re

from timestone_cli.process.version import package_version, timestone_version


def test_the_version_is_the_installed_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", timestone_version())


def test_what_is_not_installed_is_unknown() -> None:
    assert package_version("no-such-distribution") == "unknown"
