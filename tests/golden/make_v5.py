"""Write the golden store of a replica, whose header pages have version 2: `python -m tests.golden.make_v5 FOLDER`.

Use it only to find the difference when a test here fails. The stored files are never replaced: a changed byte is a new
format version with a separate golden store.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.golden.making import wait_until_sealed, write_expected
from tests.support.step_clock import StepClock
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


def make(folder: Path) -> None:
    """Make a sealed segment of generation 3 and one of generation 4 that was never closed, with a record that is not
    committed."""
    with tempfile.TemporaryDirectory() as scratch:
        live = Path(scratch) / "store"
        config = StoreConfig(min_free_bytes=0, log=LogConfig(segment_entries=4))
        with Store(live, config, clock=StepClock(), log_type=ReplicatedLog) as store:
            log = store.log("telemetry")
            assert isinstance(log, ReplicatedLog)
            for offset in range(6):
                if offset in (0, 4):
                    log.lead(3 + offset // 4)
                topic = log.topic_id(f"devices/{offset % 2}/state")
                log.submit(WriteBatch([b'{"celsius": %d.5}' % offset], topic), ack=Ack.SYNCED)
                log.sync()
                log.show(min(offset + 1, 5))
            wait_until_sealed(log, 1)
            # Copied while it is open: the state after a kill -9.
            shutil.copytree(live / "telemetry-0", folder / "telemetry-0")
        shutil.copy(live / "catalog.db", folder / "catalog.db")
        write_expected(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
