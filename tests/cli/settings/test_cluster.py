"""Settings of a node of a cluster."""

from pathlib import Path
from typing import Any

import pytest

from timestone_cli.settings.cluster import ClusterSettings

FILES: Any = {"ca": Path("ca"), "certificate": Path("own"), "key": Path("key")}


def test_node_listens_on_loopback_unless_it_has_certificates() -> None:
    assert ClusterSettings().listen == "127.0.0.1:0"
    with pytest.raises(ValueError, match="without a login"):
        ClusterSettings(listen="0.0.0.0:7000")
    assert ClusterSettings(listen="0.0.0.0:7000", **FILES).ca == Path("ca")


@pytest.mark.parametrize(
    "wrong", [{"ca": Path("ca")}, {"listen": "nowhere"}, {"advertise": "nowhere"}, {"user": "plant"}]
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        ClusterSettings(**wrong)  # type: ignore[arg-type]
