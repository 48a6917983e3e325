"""The types of the compiled kernel: those of its twins."""

from mqtt_front.codec.frame import frame_records as frame_records
from mqtt_front.codec.scan import scan_publishes as scan_publishes

INTERFACE: int
