"""What a browser asks the console for: the calls of each page and how often, as `console/web/pages` makes them."""

import posixpath
import re
from typing import NamedTuple
from urllib.parse import urlencode

MONTH_US = 30 * 86_400_000_000
_IMPORT = re.compile(r"""(?:from|import)\s+'(\.[^']+\.js)'""")
_LINK = re.compile(r"""(?:src|href)="(/[^"]+)\"""")


class Ask(NamedTuple):
    """A call, and the time between two of them."""

    path: str
    every_s: float


def call(name: str, *pairs: tuple[str, str | int]) -> str:
    """Return the path of a call of the API."""
    return f"/api/v1/{name}" + (f"?{urlencode(pairs)}" if pairs else "")


_NAMES = (
    "timestone_mqtt_publishes_received_total",
    "timestone_mqtt_deliveries_sent_total",
    "timestone_mqtt_acknowledge_seconds:p50",
    "timestone_mqtt_acknowledge_seconds:p99",
    "timestone_store_flush_seconds:p99",
    "timestone_mqtt_sessions_connected",
)
_LOG = ("log", "mqtt")


def pages(now_us: int) -> dict[str, tuple[Ask, ...]]:
    """Return the calls of each page, those of the shell not included. now_us: end of the month that the chart has."""
    charts = call(
        "series",
        *(("name", name) for name in _NAMES),
        ("from", now_us - MONTH_US),
        ("to", now_us),
        ("points", 500),
    )
    return {
        "overview": (
            Ask(charts, 5),
            Ask(call("clients", ("sort", "publishes_in_per_s"), ("limit", 5)), 2),
            Ask(call("readers", ("sort", "lag"), ("limit", 10)), 2),
        ),
        "clients": (Ask(call("clients", ("sort", "messages"), ("limit", 50)), 2),),
        "clients, searched": (Ask(call("clients", ("text", "-77"), ("sort", "client"), ("limit", 50)), 2),),
        "topics": (
            Ask(call("topics", _LOG, ("sort", "bytes"), ("limit", 100)), 2),
            Ask(call("topics", _LOG, ("limit", 1)), 5),
        ),
        "topics, searched": (Ask(call("topics/search", _LOG, ("filter", "plant/+/line-7/#")), 3),),
        "logs": (Ask(call("logs", ("limit", 100)), 2),),
        "log": (
            Ask(call("logs/mqtt", ("partition", 0)), 5),
            Ask(call("logs/mqtt/map", ("partition", 0)), 5),
            Ask(call("logs/mqtt/segments", ("partition", 0), ("limit", 10), ("order", "trouble")), 5),
        ),
        "records": (Ask(call("records", _LOG, ("limit", 50), ("order", "newest")), 2),),
        "readers": (Ask(call("readers", ("sort", "lag"), ("limit", 100)), 2),),
        "alerts": (Ask(call("alerts"), 3), Ask(call("events", ("limit", 100)), 3)),
        "about": (Ask(call("about"), 10),),
    }


BESIDE = {"live tail": (), "csv": (Ask(call("clients", ("limit", 500), ("format", "csv")), 2),)}
"""What a browser may do that is not a page."""
SHELL = (Ask(call("me"), 60), Ask(call("overview"), 5))
"""Calls of every page, beside its stream."""
STREAM = call("stream")
TAIL = call("stream", _LOG)


def linked(path: str, text: str) -> set[str]:
    """Return the paths of the files that the first page, or a module, loads at once."""
    imported = {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), one)) for one in _IMPORT.findall(text)
    }
    return imported | {one for one in _LINK.findall(text) if "." in one}
