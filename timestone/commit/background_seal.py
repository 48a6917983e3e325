"""The thread that seals rolled segments, so that no append waits for the flush of a whole segment."""

import logging

from timestone.commit.log_commit import LogCommit
from timestone.commit.log_thread import LogThread

_LOGGER = logging.getLogger("timestone")


class Sealer:
    """Seals in the background, one segment at a time."""

    def __init__(self) -> None:
        self._thread = LogThread("timestone-sealer", _seal)

    def expect(self, log: LogCommit) -> None:
        """The log has a rolled segment."""
        self._thread.put(log)

    def settle(self) -> None:
        """Wait until the logs that were expected before this call are done with."""
        self._thread.settle()

    def stop(self) -> None:
        """Seal what is waiting and end the thread."""
        self._thread.stop()


def _seal(log: LogCommit) -> None:
    try:
        log.seal_rolled()
    except OSError as error:
        # Nothing is lost: the segment stays unclosed and is sealed with the next roll or by the next open.
        _LOGGER.error("%s: a segment could not be sealed: %s", log.log, error)
    except Exception as error:
        _LOGGER.error("%s: sealing stopped: %s", log.log, error)
