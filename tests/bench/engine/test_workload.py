import itertools

import pytest

from timestone_bench.engine.workload import Workload


@pytest.mark.parametrize("size", [1, 3, 64, 1024])
@pytest.mark.parametrize("count", [1, 63, 64, 1000, 5000])
@pytest.mark.parametrize("record_bytes", [1, 100, 65_536])
def test_every_record_is_there_once_with_any_chunks(record_bytes: int, count: int, size: int) -> None:
    workload = Workload(record_bytes, count)
    chunks = list(workload.chunks(size))
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    assert sum(map(len, chunks)) == count
    assert {len(record) for chunk in chunks for record in chunk} == {record_bytes}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(1000, 64), (5, 1024), (40_000, 1024)])
def test_raw_rows_write_the_same_bytes(count: int, size: int) -> None:
    workload = Workload(1000, count)
    assert workload.joined_chunks(size) == [b"".join(chunk) for chunk in workload.chunks(size)]


def test_payloads_are_the_same_every_time_and_differ_from_each_other() -> None:
    first, again = (list(itertools.chain(*Workload(64, 500).chunks(100))) for _ in range(2))
    assert first == again
    assert len(set(first)) == 500


def test_a_shortened_workload_keeps_its_records() -> None:
    assert Workload(10, 100).shortened(7) == Workload(10, 7)
    assert Workload(10, 100).shortened(700) == Workload(10, 100)
    assert Workload(10, 100).size_bytes == 1000
