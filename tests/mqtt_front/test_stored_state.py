"""What a front finds again after a restart, and when all of it is saved."""

import logging
from concurrent.futures import ThreadPoolExecutor

from mqtt_front.codec.packets import Will
from mqtt_front.ingest.routing import Router
from mqtt_front.runtime.threads import Threads
from mqtt_front.settings import MqttSettings
from mqtt_front.stored_state import StoredState
from tests.support.manual_loop import ManualLoop
from timestone.store import Store


class Restarts:
    """Stored state over a real store; each call of `started` is a process of its own."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor) -> None:
        self.store, self.executor = store, executor
        self.published: list[str] = []
        self.loop = ManualLoop()

    def started(self) -> StoredState:
        self.loop = ManualLoop()
        log = logging.getLogger("test")
        router = Router([self.store.log("mqtt")], [], topic_levels=9, owner_topic_count=150)
        state = StoredState(
            router, self.store.documents, self.loop, MqttSettings(), self._publish,
            threads=Threads(self.executor), steady=self.store.steady_clock, log=log,
        )  # fmt: skip
        state.load()
        self.router = router
        return state

    def _publish(self, key: str, client_id: str, will: Will, done: object) -> None:
        self.published.append(will.topic)


def test_wills_and_the_use_of_topics_are_found_again_after_a_restart(store: Store) -> None:
    with ThreadPoolExecutor(1) as executor:
        process = Restarts(store, executor)
        state = process.started()
        state.save()
        process.loop.run_until(lambda: state.saved)
        state.wills.keep("key", Will("last/words", b"x"), 0, lambda: None)
        assert process.router.learn([b"%d" % number for number in range(100)], "owner")
        assert not state.saved
        state.save()
        process.loop.run_until(lambda: state.saved)
        again = process.started()
        again.tick()
        process.loop.run_until(lambda: process.published == ["last/words"])
        assert process.router.topic_use._counts[0].of("owner") == 100
