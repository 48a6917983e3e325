"""Settings of the console that `serve` starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from timestone.address import is_loopback, parse_address
from timestone.settings_schema import Declared, setting

DEFAULT_ADDRESS = "127.0.0.1:9465"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings(Declared):
    """Settings of the console."""

    listen: str | None = setting(
        DEFAULT_ADDRESS,
        "address of the console in a browser, if the extra `console` is installed; it starts at the first visit; none: "
        "no console",
        metavar="HOST:PORT",
    )
    users: Mapping[str, Literal["figures", "reader", "operator"]] = field(
        default_factory=dict,
        metadata={
            "help": "roles of users, whose passwords are those of MQTT: figures, reader (payloads that the access "
            "rules allow), operator (actions)",
        },
    )
    hosts: tuple[str, ...] = field(
        default=(), metadata={"help": "names beside localhost under which browsers may reach it"}
    )
    actions: bool = setting(False, "let operators act: disconnect clients, change logs, move readers")
    allow_plain: bool = setting(False, "listen beyond loopback without TLS, behind a proxy that has it")
    pipeline: Path | None = field(
        default=None, metadata={"help": "settings of a pipeline whose tables and dead letters it shows"}
    )
    certificate: Path | None = field(
        default=None, metadata={"help": "PEM file with its certificate chain; with it, it speaks TLS"}
    )
    key: Path | None = field(default=None, metadata={"help": "PEM file with the key of that certificate"})

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        address = self.address
        if (self.certificate is None) != (self.key is None):
            raise ValueError("invalid console: expected certificate and key together")
        if address is None or is_loopback(address[0]):
            return
        if not self.users:
            raise ValueError(
                f"listen = {self.listen} can be read from other machines without a login; set [console.users]"
            )
        if self.certificate is None and not self.allow_plain:
            raise ValueError(
                f"listen = {self.listen} would send passwords without TLS; set certificate and key, or allow_plain = "
                "true behind a proxy that has it"
            )

    @property
    def address(self) -> tuple[str, int] | None:
        """Return host and port; None for no console."""
        return None if self.listen is None else parse_address(self.listen, setting="console.listen")
