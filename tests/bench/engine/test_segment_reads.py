from pathlib import Path

import pytest

from timestone_bench.engine.segment_reads import PreparedLog, read_cases
from timestone_bench.engine.workload import Workload


@pytest.mark.parametrize("workload", [Workload(100, 1), Workload(1000, 3000), Workload(1, 100)], ids=str)
@pytest.mark.slow
def test_each_row_reads_all_it_says(tmp_path: Path, workload: Workload) -> None:
    prepared = PreparedLog(tmp_path / "prepared", workload)
    files = {path: path.read_bytes() for path in prepared.segments}
    names = []
    for case in read_cases(prepared):
        directory = tmp_path / case.name.replace(" ", "-")
        directory.mkdir()
        found = case.run(directory)
        names.append(case.name)
        assert found.records == workload.count
        assert found.size_bytes == workload.size_bytes
        assert found.synced_s is None
        assert len(found.calls_ns) >= 1
    assert names == [
        "pread 1 MiB",
        "bulk read",
        "bulk read again",
        "bulk read to Arrow",
        "tail read",
        "pread record",
        "single read",
    ]
    assert {path: path.read_bytes() for path in prepared.segments} == files


def test_the_prepared_log_is_sealed_and_holds_the_records_back_to_back(tmp_path: Path) -> None:
    workload = Workload(100, 2500)
    prepared = PreparedLog(tmp_path, workload)
    data = b"".join(path.read_bytes() for path in prepared.segments)
    assert data == b"".join(record for chunk in workload.chunks(100) for record in chunk)
