"""A small store as files in memory, to be damaged in many ways and read again.

What belongs here: making the files, writing a changed copy, and returning what a reader still gets. The tests decide
what is expected.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.step_clock import BOOT_ID, START_US, StepClock
from tests.support.waiting import wait_for_seals
from timestone.config import Ack, LogConfig, Recovery, StoreConfig
from timestone.errors import CorruptRecord
from timestone.kernel.entries import NO_TOPIC
from timestone.record import Header, HeaderKind, Record, encode_headers
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

LOG_NAME = "telemetry"
FOLDER = Path("telemetry-0")
SEGMENT = FOLDER / "00000000000000000000.segment"
INDEX = FOLDER / "00000000000000000000.index"
TOPICS = FOLDER / "topics"

Change = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Look:
    """The results of a reader of a store, and the reports to its owner."""

    records: dict[int, Record]
    corrupt: set[int]
    """Offsets that raised CorruptRecord."""
    next_offset: int
    told: bool
    """Opening reported a fault."""
    files: frozenset[str] = frozenset()
    """The names in the log's folder afterwards."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """The files of a store by relative path, and its appended records."""

    files: dict[Path, bytes]
    records: dict[int, Record]
    durable: int
    """Records below this offset were synced and noted in the index as such."""

    def changed(self, path: Path, change: Change) -> "Specimen":
        return replace(self, files={**self.files, path: change(self.files[path])})

    def without(self, path: Path) -> "Specimen":
        return replace(self, files={name: data for name, data in self.files.items() if name != path})

    def with_file(self, path: Path, data: bytes) -> "Specimen":
        return replace(self, files={**self.files, path: data})

    def write(self, root: Path) -> None:
        for path, data in self.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)

    def look(self, root: Path, *, boot_id: bytes = BOOT_ID, recovery: Recovery = Recovery.REPAIR) -> Look:
        """Write the store to `root`, open it, read all of it, and remove it."""
        self.write(root)
        try:
            return look(root, boot_id=boot_id, recovery=recovery)
        finally:
            shutil.rmtree(root)


def look(root: Path, *, boot_id: bytes = BOOT_ID, recovery: Recovery = Recovery.REPAIR) -> Look:
    """Open the store at `root` and read record by record, stepping over corrupt ones."""
    config = StoreConfig(min_free_bytes=0, recovery=recovery, tail_bytes=0)
    with Store(root, config, clock=StepClock(START_US + 10**9, boot_id)) as store:
        log = store.log(LOG_NAME)
        records: dict[int, Record] = {}
        corrupt: set[int] = set()
        offset = log.start_offset
        while offset < log.end_offset:
            try:
                batch = log.read(offset)
            except CorruptRecord as error:
                corrupt.add(error.offset)
                offset = error.next_offset
                continue
            records |= {record.offset: record for record in batch}
            offset = batch.next_offset
        next_offset = log.append(b"after", ack=Ack.WRITTEN)
        assert log.record(next_offset).payload == b"after"
        files = frozenset(path.name for path in (root / FOLDER).iterdir())
        return Look(records, corrupt, next_offset, bool(store.recoveries), files)


def make_specimen(
    root: Path, *, closed: bool, count: int = 8, unsynced: int = 0, config: LogConfig | None = None,
    compressed: bool = False, sealed: bool = True,
    payload: Callable[[int], bytes] = lambda number: b"record %d " % number * (1 + number % 5),
) -> Specimen:  # fmt: skip
    """Make a store with `count` records, one a batch, of which the last `unsynced` were only written; copy its files
    before the stop, or after it when `closed`; `compressed`: all segments but the last were compressed by then;
    `sealed`: a stop has sealed the last segment."""
    settings = StoreConfig(min_free_bytes=0, sync_interval_ms=10**9, log=config or LogConfig())
    store = Store(root, settings, clock=StepClock())
    log = store.log(LOG_NAME)
    for number in range(count):
        topic = log.topic_id(f"devices/{number % 3}") if number % 4 else NO_TOPIC
        block = encode_headers([Header(HeaderKind.USER, "unit", b"C")]) if number % 3 == 1 else b""
        write_batch = WriteBatch([block + payload(number)], topic, header_lengths=len(block))
        log.append_batch(write_batch, ack=Ack.WRITTEN)
        if number == count - unsynced - 1:
            log.sync()
    records = {record.offset: record for record in log.reader("earliest")}
    if compressed:
        wait_for_seals(log)
        log.configure(compression="zstd")
        log.apply_compression()
        store.deleted_files.unlink_all()
    files = {} if closed else _files(root)
    if sealed:
        log.roll()
    store.close()
    files = files or _files(root)
    shutil.rmtree(root)
    return Specimen(files, records, count if closed else count - unsynced)


def _files(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
