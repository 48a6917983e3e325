"""Write the golden store of format version 1: `python -m tests.golden.make_v1 FOLDER`.

Use it only to find the difference when a test here fails. The stored files were written by version 0.1.0 and are never
replaced: a changed byte is a new format version with a separate golden store.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import timestone
from tests.golden.making import wait_until_sealed, write_expected
from tests.support.step_clock import StepClock
from timestone import Ack, Header, HeaderKind, LogConfig, WriteBatch
from timestone.record import encode_headers

_HEADERS = (
    Header(HeaderKind.CONTENT_TYPE, "", b"application/json"),
    Header(HeaderKind.USER, "unit", b"C"),
    Header(HeaderKind.USER, "unit", b"K"),
)


def make(folder: Path) -> None:
    """Make two sealed segments and one that was never closed, with every kind of record."""
    with tempfile.TemporaryDirectory() as scratch:
        live = Path(scratch) / "store"
        config = timestone.StoreConfig(min_free_bytes=0, log=LogConfig(segment_entries=4))
        with timestone.open(live, config=config, clock=StepClock()) as store:
            log = store.log("telemetry")
            log.append(b'{"t":21.5}', topic="devices/1/state", flags=0b010)
            log.append(b"", topic="devices/2/state")
            log.append(bytes(range(256)))
            block = encode_headers(_HEADERS)
            topic = log.topic_id("geräte/3/zustand")
            log.append_batch(WriteBatch([block + b"with headers"], topic, flags=1, header_lengths=len(block)))
            log.append_many([b"5", b"6", b"7", b"8"], topic="devices/1/state", ack=Ack.SYNCED)
            log.append_many([b"9", b"10"], topics=["devices/1/state", "devices/4/state"], ack=Ack.SYNCED)
            wait_until_sealed(log, 2)
            # Copied while it is open: the state after a kill -9.
            shutil.copytree(live / "telemetry-0", folder / "telemetry-0")
        shutil.copy(live / "catalog.db", folder / "catalog.db")
        write_expected(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
