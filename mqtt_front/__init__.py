"""MQTT 3.1, 3.1.1 and 5 in front of the logs of a store.

codec → connection → link → broker → ingest, delivery: bytes come in on the left and leave on the right. Where
to look: bytes and packets `codec/`; what one client may send `connection`; CONNECT `admission`; SUBSCRIBE
`subscribing`; publishes into drafts `ingest`; records into deliveries `delivery`, `packing`; what outlives a
connection `session`, `sessions`.
"""

from mqtt_front.front import MqttFront
from mqtt_front.settings import MqttSettings, Route

__all__ = ["MqttFront", "MqttSettings", "Route"]
