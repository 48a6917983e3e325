"""MQTT 3.1, 3.1.1 and 5 in front of the logs of a store.

net → protocol → broker → handlers → ingest → log, and log → feeds → delivery → net. Read `broker.py` first; each room
says in its `__init__.py` what belongs there."""

import importlib as _importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqtt_front.front import MqttFront
    from mqtt_front.settings import MqttSettings, Route

__all__ = ["MqttFront", "MqttSettings", "Route"]


_MODULES = {"MqttFront": "front", "MqttSettings": "settings", "Route": "settings"}


def __getattr__(name: str) -> Any:
    """Import the server when it is used: `timestone --version` and tools need only a room of this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(f".{_MODULES[name]}", __name__), name)
