"""The settings of `serve` as one list: its own, the engine's, and those of the installed fronts."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from timestone.address import is_loopback, parse_address
from timestone.config import LogConfig, StoreConfig
from timestone.declared import Declared, setting
from timestone.fronts import Front

from ..errors import UsageError
from .schema import Setting, build, settings_of
from .sources import Configuration

_LISTEN = "listen"
"""The setting of a front that `--<front> HOST:PORT` is short for."""
_ACK_HELP = "what has happened to a record when it is acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Declared):
    """The settings of the command itself."""

    data: Path = field(
        default=Path("timestone-data"),
        metadata={"help": "the store's directory, created when missing", "metavar": "DIR"},
    )
    ready_file: Path | None = field(
        default=None,
        metadata={
            "help": "written once clients can connect and removed at stop: JSON with pid and addresses"
        },
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "what is logged to standard error"
    )
    metrics: str | None = setting(
        None,
        "address where Prometheus finds /metrics; port 0 takes a free one; none: nowhere",
        metavar="HOST:PORT",
    )
    metrics_allow_remote: bool = setting(False, "serve metrics beyond loopback, although they need no login")
    stop_timeout_ms: int = setting(10_000, "how long a front may take to stop before it is abandoned", low=1)

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        address = self.metrics_address
        if address is not None and not is_loopback(address[0]) and not self.metrics_allow_remote:
            raise ValueError(
                f"metrics = {self.metrics} can be read from other machines without a login; set "
                "metrics_allow_remote = true to allow that"
            )

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the page for Prometheus; None for no page."""
        return None if self.metrics is None else parse_address(self.metrics, setting="metrics")


def catalogue(fronts: Mapping[str, type[Front]]) -> dict[str, list[Setting]]:
    """Return all settings by their heading in `--help`."""
    store = list(settings_of(StoreConfig, "store", leave_out=("ack", "log")))
    # The one engine setting that every user has to know is at the top.
    ack = [
        dataclasses.replace(each, help=_ACK_HELP) for each in settings_of(StoreConfig) if each.key == "ack"
    ]
    groups = {
        "Server": [*settings_of(ServeSettings), *ack],
        "Store": store,
        "Logs that are created": list(settings_of(LogConfig, "log")),
    }
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
