"""MQTT 3.1, 3.1.1 and 5 in front of the logs of a store.

net → protocol → broker → handlers → ingest → log, and log → feeds → delivery → net. Read `broker.py` first; each room
says in its `__init__.py` what belongs there."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqtt_front.front import MqttFront
    from mqtt_front.settings import MqttSettings, Route

__all__ = ["MqttFront", "MqttSettings", "Route"]


def __getattr__(name: str) -> Any:
    # On first use: `timestone --version` and tools import a room of this package and need no server.
    if name == "MqttFront":
        from mqtt_front import front as place  # noqa: PLC0415
    elif name in __all__:
        from mqtt_front import settings as place  # noqa: PLC0415
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(place, name)
