"""A process that owns a store and appends to it: the server for tests that only read.

    python -m tests.support.writer DIRECTORY COUNT

Prints `appending` once the log exists and `appended` when COUNT records are synced, then keeps the store open until its
standard input ends. Without COUNT it appends a record every few milliseconds, each synced, until its standard input
ends.
"""

import sys
import threading

import timestone
from tests.support.stores import LOG, value_of
from timestone import LogConfig

BATCH = 250
PAUSE_S = 0.003
"""Records are appended continuously, and the processor is left to their readers."""


def _set_at_end_of_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main(path: str, count: int | None) -> None:
    ended = threading.Event()
    threading.Thread(target=_set_at_end_of_input, args=(ended,), daemon=True).start()
    with timestone.open(path) as store:
        log = store.log(LOG, config=LogConfig(segment_entries=3000))
        print("appending", flush=True)
        while not ended.wait(PAUSE_S if count is None else 0) and (count is None or log.end_offset < count):
            first = log.end_offset
            last = first + 1 if count is None else min(first + BATCH, count)
            log.append_many([value_of(offset) for offset in range(first, last)], topic="devices/1/state")
        print("appended", flush=True)
        ended.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
