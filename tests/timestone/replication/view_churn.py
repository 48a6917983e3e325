"""Process that owns a replica and has its files come and go under the same names, as fast as it can, until its standard
input ends: records that are cut, shown, sealed and compressed, and the log deleted and copied again with its old id.

Each record that is ever shown has its offset as payload, and a topic that follows from it.

python -m tests.timestone.replication.view_churn FOLDER SEED"""

import random
import sys
import threading
from pathlib import Path

from timestone.config import Ack, LogConfig, StoreConfig
from timestone.disk.files import Files
from timestone.format.identity import LogIdentity
from timestone.format.names import TOPICS_NAME, log_folder
from timestone.format.topics import create_topics_file
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

LOG = "telemetry"
SETTINGS = LogConfig(segment_entries=8, compression="zstd")  # type: ignore[arg-type]
_LOG_ID = 7


def topic_of(offset: int) -> str:
    """Return the topic of the record that is shown at an offset."""
    return f"kept/{offset // 20}"


def made(store: Store, path: Path) -> ReplicatedLog:
    folder = path / log_folder(LOG, 0)
    folder.mkdir()
    create_topics_file(Files(), folder / TOPICS_NAME, LogIdentity(_LOG_ID, LOG, 0, store.now_us()))
    log = store.log(LOG, config=SETTINGS)
    assert isinstance(log, ReplicatedLog)
    return log


def _append(log: ReplicatedLog, payload: bytes, topic: str) -> None:
    log.submit(WriteBatch([payload], log.topic_id(topic)), ack=Ack.SYNCED)


def _lose(log: ReplicatedLog, chance: random.Random, generation: int) -> None:
    """Append records that are never shown, and cut them."""
    shown, names = log.end_offset, log.names_count
    for number in range(chance.randrange(1, 30)):
        _append(log, b"lost %d %d" % (generation, number), f"lost/{generation}/{number}")
        if not chance.randrange(10):
            log.roll()
    log.sync()
    if chance.randrange(2):
        log.seal_rolled()
    log.follow()
    log.cut(shown, names)


def _name(log: ReplicatedLog) -> None:
    """Give the topics of shown records their ids again after a reset: they are the same on all replicas."""
    for offset in range(0, log.written_offset, 20):
        log.topic_id(topic_of(offset))


def _keep(log: ReplicatedLog, chance: random.Random) -> None:
    for offset in range(log.written_offset, log.written_offset + chance.randrange(1, 30)):
        _append(log, b"%d" % offset, topic_of(offset))
        if not chance.randrange(3):
            log.sync()
            log.show(chance.randrange(log.end_offset, log.written_offset + 1))
    log.sync()
    log.show(log.written_offset)


def main(path: Path, seed: int) -> None:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    chance, generation = random.Random(seed), 0
    config = StoreConfig(min_free_bytes=0, delete_delay_ms=20, log=SETTINGS)
    with Store(path, config, log_type=ReplicatedLog) as store:
        log = made(store, path)
        print("ready", flush=True)
        while not ended.is_set():
            generation += 1
            log.lead(generation)
            _name(log)
            what = chance.randrange(20)
            if what < 9:
                _lose(log, chance, generation)
            elif what < 17:
                _keep(log, chance)
            elif what == 17:
                log.roll()
                log.seal_rolled()
                log.apply_compression()
            elif what == 18:
                log.follow()
                log.reset(log.end_offset)
            else:
                shown = log.end_offset
                store.delete_log(LOG)
                log = made(store, path)
                log.lead(generation)
                while log.end_offset < shown:  # another replica has what was shown
                    _keep(log, chance)
            log.follow()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
