from pathlib import Path

import numpy as np

from tests.support.workload import crash_config
from timestone.kernel.entries import NO_TOPIC
from timestone.replication.names_used import names_of, note_ceiling, noted_ceiling
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store


def test_number_of_names_is_one_more_than_the_highest_topic_id() -> None:
    assert [names_of(one) for one in (NO_TOPIC, 0, 6)] == [0, 1, 7]
    assert names_of(np.array([3, NO_TOPIC, 5, 1], dtype=np.uint32)) == 6
    assert names_of(np.array([NO_TOPIC], dtype=np.uint32)) == 0


def test_ceiling_of_a_log_never_falls(tmp_path: Path) -> None:
    with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
        for offset in (7, 9, 8):
            note_ceiling(store.documents, "telemetry-0", offset)
        assert noted_ceiling(store.documents, "telemetry-0") == 9
        assert noted_ceiling(store.documents, "flow-0") == 0
