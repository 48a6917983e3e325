"""Settings as options of a command: one option a setting, under the heading of the setting."""

import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..group import Option
from .schema import Setting, choices

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_UNITS = {
    "_bytes_per_s": "SIZE", "_bytes": "SIZE", "_per_s": "COUNT", "_ms": "DURATION", "_s": "DURATION",
    "_percent": "PERCENT", "_level": "LEVEL",
}  # fmt: skip
_KINDS = {int: "COUNT", float: "NUMBER", bool: "[true|false]", Path: "FILE", str: "TEXT"}


class _SettingText(click.ParamType[str]):
    """The text of a setting, converted later together with the other sources; a shell completes it by its kind."""

    name = "text"

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the words that are possible, or let the shell complete paths."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell asks for this

        kind = metavar(self._setting)
        if kind in ("FILE", "DIR"):
            return [CompletionItem(incomplete, type="dir" if kind == "DIR" else "file")]
        words = ["true", "false"] if self._setting.type is bool else choices(self._setting.type)
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def setting_options(
    settings: Iterable[Setting], heading: str, *, is_common: bool = False
) -> list[click.Option]:
    """Return an option for each setting. Its value is the text that was given, None for none.

    Those that are not common are explained by `--help-all` only; a setting with a shorter option is always common.
    """
    return [_option(setting, heading, is_common=is_common or bool(setting.aliases)) for setting in settings]


def given_texts(settings: Iterable[Setting], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that were given, by the key of the setting."""
    named = {setting.key: values[parameter_name(setting)] for setting in settings}
    return {key: text for key, text in named.items() if text is not None}


def parameter_name(setting: Setting) -> str:
    """Return the name of the option's parameter."""
    return setting.key.replace(".", "_")


def metavar(setting: Setting) -> str:
    """Return what stands for the value in `--help`: the kind of value, or the words that are possible."""
    if setting.metavar:
        return setting.metavar
    if words := choices(setting.type):
        return f"[{'|'.join(words)}]"
    kind = _not_none(setting.type)
    origin = typing.get_origin(kind)
    if origin is not None:
        return "TABLE" if issubclass(origin, Mapping) else "LIST"
    if kind is int:
        return next((unit for ending, unit in _UNITS.items() if setting.key.endswith(ending)), "COUNT")
    return _KINDS.get(kind, "TEXT")


def _option(setting: Setting, heading: str, *, is_common: bool) -> click.Option:
    attributes: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if setting.type is bool else {}
    return Option(
        [parameter_name(setting), *setting.aliases, setting.option],
        heading=f"{heading}: {setting.heading}" if setting.heading else heading,
        is_common=is_common,
        metavar=metavar(setting),
        type=_SettingText(setting),
        help=setting.describe(),
        **attributes,
    )


def _not_none(hint: Any) -> Any:
    """Return the type of a value that may be None as well."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    return hint
