"""Options of each worker of `serve --workers`: those of the server, with what a worker has for itself."""

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timestone.address import parse_address, shown_address
from timestone.format.names import CATALOG_NAME

from ..errors import UsageError
from .cluster import ClusterSettings
from .console import ConsoleSettings
from .schema import Setting
from .serve import ServeSettings


def worker_options(
    settings: Sequence[Setting],
    texts: Mapping[str, str],
    config: Path | None,
    own: ServeSettings,
    cluster: ClusterSettings,
    console: ConsoleSettings,
    fronts: Mapping[str, Any],
) -> dict[str, list[str]]:
    """Return the options of each worker by its name.

    texts: of the options that were given, by the key of the setting; fronts: settings of those of a node, by name.

    Raises UsageError for what several workers cannot have."""
    if cluster.etcd is None:
        raise UsageError("workers are nodes of a cluster: expected --cluster URL as well")
    if (own.data / CATALOG_NAME).exists():
        raise UsageError(f"invalid data directory {own.data}: it has a store, and workers have folders in it")
    mqtt, flight = fronts.get("mqtt"), fronts.get("flight")
    for listener in mqtt.all_listeners if mqtt is not None else ():
        if listener.host_and_port[1] == 0:
            raise UsageError(
                f"invalid address {listener.address}: expected a port, at which all workers listen"
            )
    by_key = {setting.key: setting for setting in settings}
    found = {}
    for number in range(own.workers):
        name = f"worker-{number}"
        changed = dict(texts) | _changes(number, name, own, cluster, console)
        if flight is not None and flight.listen is not None:
            changed["flight.listen"] = _port_of_its_own(flight.listen, number)
            if flight.advertise is not None:
                changed["flight.advertise"] = _port_of_its_own(flight.advertise, number)
        if mqtt is not None:
            changed["mqtt.share_ports"] = "true"
        options = [f"{by_key[key].option}={text}" for key, text in changed.items()]
        found[name] = ([] if config is None else [f"--config={config}"]) + options
    return found


def _changes(
    number: int, name: str, own: ServeSettings, cluster: ClusterSettings, console: ConsoleSettings
) -> dict[str, str]:
    """Return what a worker has for itself, by the key of the setting. Ports of their own follow the given one."""
    machine = socket.gethostname()
    changed = {
        "workers": "1",
        "data": str(own.data / name),
        "cluster.name": f"{cluster.name or machine}-{number}",
        "cluster.zone": cluster.zone or machine,
        "cluster.listen": _port_of_its_own(cluster.listen, number),
    }
    if cluster.advertise is not None:
        changed["cluster.advertise"] = _port_of_its_own(cluster.advertise, number)
    if own.metrics is not None:
        changed["metrics"] = _port_of_its_own(own.metrics, number)
    if own.ready_file is not None:
        changed["ready_file"] = str(own.data / f"{name}.ready")
    if number and console.listen is not None:
        changed["console.listen"] = "none"
    return changed


def _port_of_its_own(address: str, number: int) -> str:
    host, port = parse_address(address, setting="address")
    return shown_address(host, port + number if port else 0)


def write_ready_file(path: Path, pid: int, names: Sequence[str], data: Path) -> None:
    """Write what the workers that are ready have written, by their name; readers never see half of it."""
    workers = {name: json.loads((data / f"{name}.ready").read_text("utf-8")) for name in names}
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps({"pid": pid, "workers": workers}, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(path)
