"""A will is published once: at once, after its delay, or when the session ends first; not if the client is back."""

from mqtt_front.codec.packets import Will
from mqtt_front.codec.properties import Properties
from mqtt_front.wills import Wills


class Published:
    def __init__(self) -> None:
        self.now = 0.0
        self.topics: list[str] = []
        self.wills = Wills(lambda client_id, will: self.topics.append(will.topic), clock=lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wills.publish_due()


def will(topic: str, delay_s: int = 0) -> Will:
    return Will(topic, b"", properties=Properties(will_delay_interval=delay_s))


def test_without_a_delay_it_is_published_at_once() -> None:
    published = Published()
    published.wills.left("c", will("a"), 100)
    assert published.topics == ["a"]


def test_it_waits_for_the_delay_or_the_end_of_the_session_whichever_is_first() -> None:
    published = Published()
    published.wills.left("c", will("delay", 5), 100)
    published.wills.left("d", will("session", 100), 3)
    published.wills.left("e", will("no session", 100), 0)
    assert published.topics == ["no session"]
    published.pass_time(4)
    assert published.topics == ["no session", "session"]
    published.pass_time(1)
    assert published.topics == ["no session", "session", "delay"]


def test_a_client_that_is_back_in_time_takes_it_back() -> None:
    published = Published()
    published.wills.left("c", will("a", 5), 100)
    published.wills.returned("c", session_continues=True)
    published.wills.left("c", will("b", 5), 100)
    published.pass_time(100)
    assert published.topics == ["b"]


def test_a_client_that_starts_anew_ends_the_session_that_the_will_belongs_to() -> None:
    published = Published()
    published.wills.left("c", will("a", 5), 100)
    published.wills.returned("c", session_continues=False)
    published.pass_time(100)
    assert published.topics == ["a"]


def test_all_of_them_are_published_when_the_server_stops() -> None:
    published = Published()
    published.wills.left("c", will("a", 50), 100)
    published.wills.publish_all()
    published.pass_time(100)
    assert published.topics == ["a"]
