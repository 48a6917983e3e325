"""Options of each worker: those of the server, and what each has for itself."""

import socket
from pathlib import Path

import pytest

from timestone.format.names import CATALOG_NAME
from timestone_cli.errors import UsageError
from timestone_cli.server.fronts import installed_fronts
from timestone_cli.settings.cluster import ClusterSettings
from timestone_cli.settings.console import ConsoleSettings
from timestone_cli.settings.serve import ServeSettings, catalogue
from timestone_cli.settings.workers import worker_options

MQTT = installed_fronts()["mqtt"].settings()
FLIGHT = installed_fronts()["flight"].settings()
SETTINGS = [setting for group in catalogue(installed_fronts()).values() for setting in group]
URL = "etcd://127.0.0.1:2379/plant"


def options_of(own: ServeSettings, cluster: ClusterSettings, **fronts: object) -> dict[str, list[str]]:
    texts = {"cluster.etcd": URL, "data": "elsewhere", "workers": "2"}
    return worker_options(SETTINGS, texts, None, own, cluster, ConsoleSettings(), fronts)


def test_workers_have_folders_names_and_ports_of_their_own_and_share_those_of_mqtt(tmp_path: Path) -> None:
    own = ServeSettings(data=tmp_path, workers=2, metrics="127.0.0.1:9464", ready_file=tmp_path / "ready")
    cluster = ClusterSettings(etcd=URL, name="m", listen="127.0.0.1:7000", advertise="127.0.0.1:8000")
    fronts = {
        "mqtt": MQTT(listen="127.0.0.1:1883"),
        "flight": FLIGHT(listen="127.0.0.1:8815", advertise="m:9815"),
    }
    found = options_of(own, cluster, **fronts)
    assert list(found) == ["worker-0", "worker-1"]
    assert set(found["worker-1"]) == {
        f"--cluster-etcd={URL}", "--workers=1", f"--data={tmp_path}/worker-1", "--cluster-name=m-1",
        f"--cluster-zone={socket.gethostname()}", "--cluster-listen=127.0.0.1:7001",
        "--cluster-advertise=127.0.0.1:8001", "--metrics=127.0.0.1:9465", "--mqtt-share-ports=true",
        f"--ready-file={tmp_path}/worker-1.ready", "--console-listen=none",
        "--flight-listen=127.0.0.1:8816", "--flight-advertise=m:9816",
    }  # fmt: skip
    assert "--cluster-listen=127.0.0.1:7000" in found["worker-0"]
    assert "--console-listen=none" not in found["worker-0"]


def test_zone_and_free_ports_stay_as_they_are_given(tmp_path: Path) -> None:
    found = options_of(ServeSettings(data=tmp_path, workers=2), ClusterSettings(etcd=URL, zone="rack1"))
    for options in found.values():
        assert {"--cluster-zone=rack1", "--cluster-listen=127.0.0.1:0"} <= set(options)
        assert not [one for one in options if "mqtt" in one or "metrics" in one]


def test_what_several_workers_cannot_have_is_refused(tmp_path: Path) -> None:
    own = ServeSettings(data=tmp_path, workers=2)
    with pytest.raises(UsageError, match="expected --cluster URL"):
        options_of(own, ClusterSettings())
    with pytest.raises(UsageError, match="at which all workers listen"):
        options_of(own, ClusterSettings(etcd=URL), mqtt=MQTT(listen="127.0.0.1:0"))
    (tmp_path / CATALOG_NAME).touch()
    with pytest.raises(UsageError, match="it has a store"):
        options_of(own, ClusterSettings(etcd=URL))
