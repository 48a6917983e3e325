"""The types of the compiled kernel: those of its twins."""

from mqtt_front.codec.frame import frame_records as frame_records
from mqtt_front.codec.scan import scan_publishes as scan_publishes
from mqtt_front.kernel.publish_fast_path import AdmittedCount as AdmittedCount
from mqtt_front.kernel.publish_fast_path import PolledClient as PolledClient
from mqtt_front.kernel.publish_fast_path import PublishFastPath as PublishFastPath
from mqtt_front.kernel.publish_fast_path import discharge as discharge
from mqtt_front.kernel.single_delivery import SingleDelivery as SingleDelivery
from mqtt_front.kernel.topic_cache import TopicCache as TopicCache

INTERFACE: int
