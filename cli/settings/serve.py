"""Everything `serve` can be told, as one list: its own settings, the engine's, and those of the installed fronts."""

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
_ACK_HELP = "what has happened to a record that is acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Declared):
    """What the command itself can be told."""

    data: Path = field(
        default=Path("timestone-data"), metadata={"help": "the store's directory, created when missing"}
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
        None, "HOST:PORT where Prometheus finds /metrics; port 0 takes a free one; none: nowhere"
    )
    metrics_allow_remote: bool = setting(
        False, "have metrics beyond loopback, although nobody has to say who it is there"
    )
    stop_timeout_ms: int = setting(10_000, "what a front may take to stop before it is abandoned", low=1)

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        address = self.metrics_address
        if address is not None and not is_loopback(address[0]) and not self.metrics_allow_remote:
            raise ValueError(
                f"metrics = {self.metrics} is reached from other machines, by anybody; set metrics_allow_remote = true "
                "if that is meant"
            )

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the page for Prometheus."""
        return None if self.metrics is None else parse_address(self.metrics, setting="metrics")


def catalogue(fronts: Mapping[str, type[Front]]) -> dict[str, list[Setting]]:
    """Every setting there is, by the heading it has in `--help`."""
    store = list(settings_of(StoreConfig, "store", leave_out=("ack", "log")))
    # The one engine setting that everybody has to know stands at the top.
    ack = [
        dataclasses.replace(each, help=_ACK_HELP) for each in settings_of(StoreConfig) if each.key == "ack"
    ]
    groups = {
        "server": [*settings_of(ServeSettings), *ack],
        "store": store,
        "logs that are created": list(settings_of(LogConfig, "log")),
    }
    for name, front in fronts.items():
        groups[f"{name} front"] = [
            dataclasses.replace(each, aliases=(f"--{name}",)) if each.key == f"{name}.{_LISTEN}" else each
            for each in settings_of(front.settings(), name)
        ]
    return groups


def serve_settings(given: Configuration) -> ServeSettings:
    """The command's own settings; UsageError when they contradict themselves."""
    own: ServeSettings = _built(ServeSettings, "", given)
    return own


def store_config(given: Configuration) -> StoreConfig:
    """The engine's settings; UsageError when they contradict themselves."""
    ack = {"ack": given.values["ack"]} if "ack" in given.values else {}
    config: StoreConfig = _built(StoreConfig, "store", given, log=_built(LogConfig, "log", given), **ack)
    return config


def front_settings(front: type[Front], name: str, given: Configuration) -> Any:
    """A front's settings as the class it declares; UsageError when they contradict themselves."""
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
