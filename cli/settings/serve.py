"""Settings of `serve` as one list: its own, the engine's, and those of the installed fronts."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from timestone.address import is_loopback, parse_address
from timestone.config import LogConfig, StoreConfig
from timestone.fronts import Front
from timestone.settings_schema import Declared, setting
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import TieringError

from ..errors import UsageError
from .cluster import ClusterSettings
from .console import ConsoleSettings
from .schema import Setting, build, settings_of
from .sources import Configuration

OWN_HEADING = "Server"
"""Heading of the settings that every user needs."""
_LISTEN = "listen"
"""Setting of a front that `--<front> HOST:PORT` is short for."""
_INTERVAL_LEAST_MS = 100
_CLIENTS_MOST = 1_000_000
_ACK_HELP = "what has happened to a record when it is acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Declared):
    """Settings of the command itself."""

    data: Path = field(
        default=Path("timestone-data"),
        metadata={"help": "directory of the store, created if missing", "metavar": "DIR"},
    )
    workers: int = setting(
        1,
        "nodes of a cluster that run on this machine, each a process with a folder DIR/worker-N of its own; they share "
        "the addresses of MQTT",
        low=1,
        high=256,
    )
    ready_file: Path | None = field(
        default=None,
        metadata={
            "help": "file written once clients can connect and removed at stop: JSON with pid and addresses"
        },
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "lowest level logged to standard error"
    )
    log_format: Literal["text", "json"] = setting("text", "a line of the log: for people, or a JSON object")
    metrics: str | None = setting(
        None,
        "address of the page /metrics for Prometheus; port 0 selects a free port; none: no page",
        metavar="HOST:PORT",
    )
    metrics_allow_remote: bool = setting(False, "serve metrics beyond loopback, although they need no login")
    metrics_interval_ms: int = setting(
        10_000,
        "interval of the samples in the log timestone.metrics, from 100 ms to 1 h; 0: the server records neither "
        "samples nor events",
        low=0,
        high=3_600_000,
    )
    metrics_client_count: int | Literal["all"] = setting(
        200,
        "most connections whose counts are recorded each minute: first those in trouble, then the busiest; or all",
        low=0,
        high=_CLIENTS_MOST,
        metavar="N|all",
        words=("all",),
    )
    stop_timeout_ms: int = setting(10_000, "time for a front to stop before it is abandoned", low=1)

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        if 0 < self.metrics_interval_ms < _INTERVAL_LEAST_MS:
            expected = f"0, or {_INTERVAL_LEAST_MS} or more"
            raise ValueError(
                f"invalid metrics_interval_ms: expected {expected}, got {self.metrics_interval_ms}"
            )
        address = self.metrics_address
        if address is not None and not is_loopback(address[0]) and not self.metrics_allow_remote:
            raise ValueError(
                f"metrics = {self.metrics} can be read from other machines without a login; set "
                "metrics_allow_remote = true to allow that"
            )

    @property
    def recorded_clients(self) -> int:
        """Return `metrics_client_count` as a number."""
        return _CLIENTS_MOST if self.metrics_client_count == "all" else self.metrics_client_count

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Return host and port of the page for Prometheus; None for no page."""
        return None if self.metrics is None else parse_address(self.metrics, setting="metrics")


def catalogue(fronts: Mapping[str, type[Front]]) -> dict[str, list[Setting]]:
    """Return all settings by their heading in `--help`."""
    store = list(settings_of(StoreConfig, "store", leave_out=("ack", "log")))
    # The one engine setting that every user has to know is at the top.
    ack = [
        dataclasses.replace(each, help=_ACK_HELP) for each in settings_of(StoreConfig) if each.key == "ack"
    ]
    groups = {
        OWN_HEADING: [*settings_of(ServeSettings), *ack],
        "Store": store,
        "Logs that are created": list(settings_of(LogConfig, "log")),
        "Tier": [
            dataclasses.replace(each, aliases=("--tier",)) if each.key == "tier.url" else each
            for each in settings_of(TierConfig, "tier")
        ],
    }
    groups["Cluster"] = [
        dataclasses.replace(each, aliases=("--cluster",)) if each.key == "cluster.etcd" else each
        for each in settings_of(ClusterSettings, "cluster")
    ]
    groups["Console"] = [
        dataclasses.replace(each, aliases=("--console",)) if each.key == "console.listen" else each
        for each in settings_of(ConsoleSettings, "console")
    ]
    for name, front in fronts.items():
        groups[name.upper()] = [
            dataclasses.replace(each, aliases=(f"--{name}",)) if each.key == f"{name}.{_LISTEN}" else each
            for each in settings_of(front.settings(), name)
        ]
    return groups


def serve_settings(given: Configuration) -> ServeSettings:
    """Return the command's own settings. Raises UsageError when they contradict each other."""
    own: ServeSettings = _built(ServeSettings, "", given)
    return own


def store_config(given: Configuration) -> StoreConfig:
    """Return the engine's settings. Raises UsageError when they contradict each other."""
    ack = {"ack": given.values["ack"]} if "ack" in given.values else {}
    config: StoreConfig = _built(StoreConfig, "store", given, log=_built(LogConfig, "log", given), **ack)
    return config


def console_settings(given: Configuration) -> tuple[ConsoleSettings, bool]:
    """Return the settings of the console, and whether its address is the default one. Raises UsageError when they
    contradict each other."""
    settings: ConsoleSettings = _built(ConsoleSettings, "console", given)
    return settings, "console.listen" not in given.sources


def cluster_settings(given: Configuration) -> ClusterSettings:
    """Return the settings of a node of a cluster. Raises UsageError when they contradict each other, or something is
    set that such a node cannot do."""
    settings: ClusterSettings = _built(ClusterSettings, "cluster", given)
    if settings.etcd is not None:
        for key in given.sources:
            if key.startswith("flight.") and "flight.listen" not in given.sources:
                raise UsageError(f"{key} needs flight.listen for a node of a cluster")
            if key.startswith("mqtt.") and not {"mqtt.listen", "mqtt.listeners"} & given.sources.keys():
                raise UsageError(f"{key} needs mqtt.listen or mqtt.listeners for a node of a cluster")
    return settings


def cluster_remarks(given: Configuration) -> list[str]:
    """Return a warning if settings of logs are given to a node of a cluster, whose logs have theirs in etcd."""
    where = sorted(source for key, source in given.sources.items() if key.startswith("log."))
    if not where or given.values.get("cluster.etcd") is None:
        return []
    return [
        f"{', '.join(where)}: not for the logs of a cluster, which `timestone cluster configure-log` sets in etcd"
    ]


def replicated_fronts(fronts: Mapping[str, type[Front]], given: Configuration) -> dict[str, type[Front]]:
    """Return the fronts of a node of a cluster: those that are given an address."""
    addresses = {"mqtt": {"mqtt.listen", "mqtt.listeners"}, "flight": {"flight.listen"}}
    return {
        name: front for name, front in fronts.items() if addresses.get(name, set()) & given.sources.keys()
    }


def tier_config(given: Configuration) -> TierConfig:
    """Return where sealed segments go. Raises UsageError for a URL that no bucket can have."""
    try:
        config: TierConfig = _built(TierConfig, "tier", given)
    except TieringError as error:
        raise UsageError(f"tier: {error}") from None
    return config


def front_settings(front: type[Front], name: str, given: Configuration) -> Any:
    """Return a front's settings as its own class. Raises UsageError when they contradict each other."""
    return _built(front.settings(), name, given)


def _built(kind: type, section: str, given: Configuration, **fields: Any) -> Any:
    try:
        return build(kind, section, given.values, **fields)
    except ValueError as error:
        where = sorted({source for key, source in given.sources.items() if key.startswith(f"{section}.")})
        raise UsageError(
            (f"{section}: " if section else "")
            + str(error)
            + (f" (from {', '.join(where)})" if where else "")
        ) from None
