"""The twins of the front's per-message loops, for tests that run on each of them."""

import importlib.util
from typing import Any

import pytest

from mqtt_front.codec import frame, scan
from mqtt_front.kernel import topic_cache
from tests.support.python_fast_path import PublishFastPath

_TWINS: dict[str, Any] = {
    "scan_publishes": scan.scan_publishes,
    "frame_records": frame.frame_records,
    "TopicCache": topic_cache.TopicCache,
    "PublishFastPath": PublishFastPath,
}
NATIVE: Any = (
    importlib.import_module("mqtt_front.kernel._kernel")
    if importlib.util.find_spec("mqtt_front.kernel._kernel")
    else None
)


def each_kernel(function: str) -> list[Any]:
    """Return the function or class in Python and, where it was built, the compiled one, as parameters of a test."""
    found = [pytest.param(_TWINS[function], id="pure")]
    if NATIVE is not None:
        found.append(pytest.param(getattr(NATIVE, function), id="native"))
    return found
