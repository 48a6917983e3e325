"""Rows of `timestone bench compare` for the engine: processor time of appends and reads by the Python of one checkout.

Run as a program, with the Python of that checkout, which may be an old one: it uses only the public interface. Prints
one JSON object: microseconds of processor time, of all threads, for each record.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable

import timestone

PAYLOAD = bytes(100)
SIZES = (1, 64, 1024)
READS = 20
"""Scans of the log: one is too short to be measured."""


def measure(count: int) -> dict[str, float]:
    """Return the microseconds of each row for `count` records."""
    with tempfile.TemporaryDirectory() as folder, timestone.open(folder, ack="written") as store:
        found = {f"append {size}": _of_each(count, _appends(store, size, count)) for size in SIZES}
        log = store.log(f"append-{SIZES[-1]}")
        found["read"] = _of_each(READS * count, lambda: _read(log, count))
        found["record"] = _of_each(count, lambda: [log.record(offset) for offset in range(count)])
        return found


def _appends(store: timestone.Store, size: int, count: int) -> Callable[[], None]:
    log, batch = store.log(f"append-{size}"), [PAYLOAD] * size

    def append() -> None:
        if size == 1:
            for _ in range(count):
                log.append(PAYLOAD, topic="a/b")
        else:
            for _ in range(count // size):
                log.append_many(batch, topic="a/b")

    return append


def _read(log: timestone.Log, count: int) -> None:
    for _ in range(READS):
        reader, left = log.reader("earliest"), count
        while left > 0:
            left -= len(reader.read())


def _of_each(count: int, work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) / count * 1e6


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
