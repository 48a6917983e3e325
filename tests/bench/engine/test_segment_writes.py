import os
from pathlib import Path

import pytest

import timestone
from timestone.config import Ack
from timestone_bench.engine.segment_writes import write_cases
from timestone_bench.engine.workload import Workload

WORKLOAD = Workload(100, 2000)


@pytest.mark.parametrize("ack", list(Ack))
@pytest.mark.slow
def test_each_row_writes_all_records_and_the_log_can_be_read_afterwards(tmp_path: Path, ack: Ack) -> None:
    expected = [record for chunk in WORKLOAD.chunks(1) for record in chunk]
    for number, case in enumerate(write_cases(WORKLOAD, ack)):
        directory = tmp_path / str(number)
        directory.mkdir()
        found = case.run(directory)
        assert found.size_bytes == found.records * 100
        assert found.synced_s is not None
        assert found.synced_s >= found.elapsed_s
        if case.peer is None:
            (path,) = [path for path in directory.iterdir() if path.suffix != ".index"]
            data = path.read_bytes()
            assert data == b"".join(expected[: found.records])
        else:
            with timestone.open(directory / "store") as store:
                payloads = [record.payload for record in store.log("bench", create=False).reader()]
            run_in, measured = payloads[: -found.records], payloads[-found.records :]
            assert run_in == measured == expected[: found.records]


def test_the_synced_row_syncs_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = os.fdatasync

    def counted(fd: int) -> None:
        calls.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    (case,) = (
        case
        for case in write_cases(Workload(100, 3 * 1024), Ack.WRITTEN)
        if case.name == "pwrite 1024 + fdatasync"
    )
    case.run(tmp_path)
    assert len(calls) == 3 + 1


def test_a_run_that_waits_for_the_disk_is_kept_short() -> None:
    rows = {case.name: case for case in write_cases(Workload(100, 10_000_000), Ack.SYNCED)}
    assert "append 1024 synced" not in rows, "every row is synced then"
    assert rows["append 1"].run.args[0].count == 200  # type: ignore[attr-defined]
