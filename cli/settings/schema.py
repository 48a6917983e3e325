"""Settings classes as a flat list of settings, each with its three spellings and its help.

Works on any frozen dataclass whose fields have defaults; a field's metadata may have `help`, `low`, `high`, `heading`
and `metavar`. A field that is itself such a dataclass becomes a table of its own. `values.py` turns text into values.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..units import format_bytes, parse_bytes

REQUIRED = object()
"""The default of a field that has none; only inside lists of tables, such as the routes of a front."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that can be set: `key` as in the file, `option` on the command line, `variable` in the environment."""

    key: str
    type: Any
    default: Any
    help: str = ""
    low: float | None = None
    high: float | None = None
    aliases: tuple[str, ...] = ()
    """Shorter options with the same meaning: `--mqtt` for `--mqtt-listen`."""
    heading: str = ""
    """The group of settings it is listed with in `--help`."""
    metavar: str = ""
    """What stands for the value in `--help`; empty for what follows from its type."""

    @property
    def option(self) -> str:
        """Return `--mqtt-listen` for the key `mqtt.listen`."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        """Return `TIMESTONE_MQTT_LISTEN` for the key `mqtt.listen`."""
        return "TIMESTONE_" + self.key.replace(".", "_").upper()

    def describe(self) -> str:
        """Return what it is, its range and its default, for `--help`."""
        facts = [f"default: {as_typed(self.default, self.key)}"]
        if not choices(self.type) and (self.low is not None or self.high is not None):
            facts.insert(0, self.bounds())
        text = f"{self.help[:1].upper()}{self.help[1:]}.  " if self.help else ""
        return f"{text}[{'; '.join(facts)}]"

    def bounds(self) -> str:
        """Return the range, as in "from 1 to 10"; empty when there is none."""
        low = f"from {as_typed(self.low, self.key)}" if self.low is not None else ""
        high = f"to {as_typed(self.high, self.key)}" if self.high is not None else ""
        return f"{low} {high}".strip()


def settings_of(kind: type, section: str = "", *, leave_out: Sequence[str] = ()) -> Iterator[Setting]:
    """Yield the settings of a dataclass under the keys `section.field`; nested dataclasses follow as deeper tables.

    A heading in the metadata of a field is for the fields from there on; that of a nested dataclass is its help.
    """
    hints = typing.get_type_hints(kind)
    heading = ""
    for field in dataclasses.fields(kind):
        if field.name in leave_out or not field.init:
            continue
        key = f"{section}.{field.name}" if section else field.name
        hint, meta = hints[field.name], field.metadata
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            for setting in settings_of(hint, key):
                yield dataclasses.replace(setting, heading=setting.heading or meta.get("help", ""))
            continue
        heading = meta.get("heading") or heading
        yield Setting(
            key,
            hint,
            _default(field),
            meta.get("help", ""),
            meta.get("low"),
            meta.get("high"),
            heading=heading,
            metavar=meta.get("metavar", ""),
        )


def build(kind: type, section: str, values: Mapping[str, Any], **given: Any) -> Any:
    """Return a `kind` from the values whose keys lie in `section`; `given` are fields that come from elsewhere.

    Raises ValueError as the class itself does.
    """
    hints = typing.get_type_hints(kind)
    fields = dict(given)
    for field in dataclasses.fields(kind):
        key = f"{section}.{field.name}" if section else field.name
        hint = hints[field.name]
        if field.name in given:
            continue
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            fields[field.name] = build(hint, key, values)
        elif key in values:
            fields[field.name] = values[key]
    return kind(**fields)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED


def choices(hint: Any) -> list[str]:
    """Return the words that a value of the type may be; empty for other types."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return [choice for each in typing.get_args(hint) for choice in choices(each)]
    if typing.get_origin(hint) is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    return []


def as_typed(value: Any, key: str) -> str:
    """Return a value as it is written on the command line."""
    if value is None:
        return "none"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and key.removesuffix("_per_s").endswith("_bytes") and value >= 1024:
        shown = format_bytes(value).replace(".0 ", " ")
        return shown if _is_exactly(shown, value) else str(value)
    if isinstance(value, int) and key.endswith("_ms") and value >= 1000:
        return next(f"{value // ms} {unit}" for unit, ms in _LONG_MS.items() if value % ms == 0)
    if isinstance(value, (tuple, list, frozenset)):
        return ",".join(as_typed(item, key) for item in value) if value else "none"
    return f"{value:_}" if isinstance(value, int) else str(value)


def _is_exactly(text: str, size: int) -> bool:
    try:
        return parse_bytes(text) == size
    except ValueError:  # it is rounded, and not to whole bytes
        return False


_LONG_MS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
