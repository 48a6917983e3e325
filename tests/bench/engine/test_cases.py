from pathlib import Path

from timestone.config import Ack
from timestone_bench.engine.segment_reads import PreparedLog, read_cases
from timestone_bench.engine.segment_writes import write_cases
from timestone_bench.engine.workload import Workload


def test_every_row_has_its_raw_peer_before_it_and_a_name_of_its_own(tmp_path: Path) -> None:
    workload = Workload(10, 10)
    for cases in (
        write_cases(workload, Ack.WRITTEN),
        write_cases(workload, Ack.SYNCED),
        read_cases(PreparedLog(tmp_path, workload)),
    ):
        seen: set[str] = set()
        for case in cases:
            assert case.name not in seen
            assert case.peer is None or case.peer in seen
            seen.add(case.name)
