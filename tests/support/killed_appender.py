"""A process that appends until it is killed, and reports acknowledgements through a pipe.

What belongs here: the victim of the kill -9 loop, and how the payload of a record identifies its number. Several
appends are in flight at once, at both levels, in batches and one by one; segments are small, so that most kills hit a
roll, a seal, a compression or a recovery. A second log with few topics is compacted all the time.
"""

import hashlib
import itertools
import os
import random
import struct
import threading
from pathlib import Path

import timestone
from timestone import Ack, LogConfig, ReaderId, StoreConfig, Submission, WriteBatch
from timestone.config import Compression

LOG_NAME = "telemetry"
ACKNOWLEDGED = struct.Struct("<QQ")
"""The number of a record and its offset. Shorter than PIPE_BUF, so the pipe takes it completely or not at all."""
STARTED = ACKNOWLEDGED.pack(2**64 - 2, 0)
"""Sent before the store is opened: from here on it recovers."""
READY = ACKNOWLEDGED.pack(2**64 - 1, 0)
"""Sent when the store is open: recovery is over."""
CONFIG = StoreConfig(
    min_free_bytes=0,
    sync_interval_ms=5,
    delete_delay_ms=20,
    compact_bytes_per_s=10**9,
    log=LogConfig(
        segment_entries=200, segment_bytes=60_000, compression=Compression.ZSTD, compression_level=1
    ),
)
STATES_NAME = "states"
STATES_CONFIG = LogConfig(segment_entries=20, compact=True)
STATE = 1 << 62
"""Added to the numbers of the records of that log."""
STATE_TOPICS = 5
READER = ReaderId(LOG_NAME, 0, "billing")
COMMITTED = 1 << 63
"""Sent with an offset that the reader has committed."""
_IN_FLIGHT = 8


def expected_payload(number: int) -> bytes:
    """Return the payload of the record with this number, different from all others."""
    rng = random.Random(number)
    proof = hashlib.sha256(b"%d" % number).digest()
    return struct.pack("<Q", number) + proof + rng.randbytes(20) * rng.choice((0, 1, 3, 25, 150))


def topic_of(number: int) -> str | None:
    """Return new topics continuously, so that the dictionary grows during the kills as well."""
    if number >= STATE:
        return f"states/{number % STATE_TOPICS}"
    return f"devices/{number // 50}" if number % 3 else None


class Appender:
    """Appends records with rising numbers, endlessly."""

    def __init__(
        self,
        root: Path,
        first_number: int,
        pipe: int,
        levels: tuple[Ack, ...] = (Ack.WRITTEN, Ack.SYNCED),
        *,
        config: StoreConfig = CONFIG,
    ) -> None:
        self.pipe = pipe
        self.levels = levels
        self.numbers = itertools.count(first_number)
        os.write(pipe, STARTED)
        self.store = timestone.open(root, config=config)
        self.log = self.store.log(LOG_NAME)
        self.states = self.store.log(STATES_NAME, config=STATES_CONFIG)
        self.room = threading.Semaphore(_IN_FLIGHT)
        self.rng = random.Random(first_number)
        os.write(pipe, READY)

    def run(self) -> None:
        """Append; never returns."""
        while True:
            self.room.acquire()
            numbers = list(itertools.islice(self.numbers, self.rng.choice((1, 1, 5, 40))))
            ack = self.rng.choice(self.levels)
            if self.rng.random() < 0.2:
                self.append_waiting(numbers[0], ack)
                for number in numbers[1:]:
                    self.append_waiting(number, ack)
                for number in numbers:
                    self.append_waiting(STATE + number, ack)
                self.room.release()
            else:
                self.submit(numbers, ack)
            if self.rng.random() < 0.2:
                offset = self.log.end_offset
                self.store.commit_readers({READER: offset})
                # SQLite takes a directory that it cannot open for a flushed one, so a commit also returns when
                # the disk goes away before that. A machine that loses power has no process that would go by it.
                list(self.store.path.iterdir())
                os.write(self.pipe, ACKNOWLEDGED.pack(COMMITTED, offset))

    def submit(self, numbers: list[int], ack: Ack) -> None:
        topics = [self.log.topic_id(topic) if (topic := topic_of(n)) else timestone.NO_TOPIC for n in numbers]

        def acknowledge(offsets: range) -> None:
            for number, offset in zip(numbers, offsets, strict=True):
                os.write(self.pipe, ACKNOWLEDGED.pack(number, offset))
            self.room.release()

        def done(submission: Submission) -> None:
            if submission.error is not None:
                raise submission.error
            acknowledge(submission.offsets)

        write_batch = WriteBatch([expected_payload(number) for number in numbers], topics)
        written = self.log.append_now(write_batch) if ack is Ack.WRITTEN else None
        if written is None:
            self.log.submit(write_batch, ack=ack, done=done)
        else:
            acknowledge(written)

    def append_waiting(self, number: int, ack: Ack) -> None:
        log = self.log if number < STATE else self.states
        offset = log.append(expected_payload(number), topic=topic_of(number), ack=ack)
        os.write(self.pipe, ACKNOWLEDGED.pack(number, offset))
