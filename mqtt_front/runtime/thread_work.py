"""Work that may block, in a thread of an executor, and its result in the event loop."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox

Result = TypeVar("Result")


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


class ThreadWork:
    """Runs work of the event loop. Event-loop thread only."""

    def __init__(self, loop: Loop) -> None:
        self._done: Mailbox[Callable[[], None]] = Mailbox(loop, _call_all)

    def run(
        self, executor: Executor, work: Callable[[], Result], then: Callable[[Result | Exception], None]
    ) -> bool:
        """Run `work`, and call `then` with its result or its error in a later turn of the loop. Return False if the
        executor is shut down, because the front is stopping: then neither is called."""

        def run() -> None:
            outcome: Result | Exception
            try:
                outcome = work()
            except Exception as error:
                outcome = error
            self._done.put(lambda: then(outcome))

        try:
            executor.submit(run)
        except RuntimeError:
            return False
        return True
