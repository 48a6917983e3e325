"""The tail keeps the newest records of all logs within one budget."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.kernel.entries import ENTRY, ENTRY_BYTES
from timestone.reading.stored_bytes import StoredBytes
from timestone.reading.tail_cache import (
    TailBudget,
    TailCache,
    TailRun,
    entries_of,
    fitting_count,
    joined,
    joined_columns,
)
from timestone.record import Record


def run(base_offset: int, count: int, payload_bytes: int = 10) -> TailRun:
    entries = np.zeros(count, dtype=ENTRY)
    entries["position"] = np.arange(base_offset, base_offset + count)  # so that a test can distinguish them
    return TailRun(
        base_offset,
        base_offset + len(entries),
        entries.tobytes(),
        StoredBytes((bytes(payload_bytes),), payload_bytes),
        0,
    )


def held(tail: TailCache, offsets: range) -> list[int]:
    return [offset for offset in offsets if tail.find(offset) is not None]


def test_every_offset_of_a_run_is_found_in_it() -> None:
    tail = TailCache(TailBudget(1 << 20))
    runs = [run(0, 3), run(3, 1), run(4, 5)]
    for one in runs:
        tail.add(one)
    assert [tail.find(offset) for offset in range(9)] == [runs[0]] * 3 + [runs[1]] + [runs[2]] * 5
    assert tail.find(9) is None


def test_empty_tail_holds_nothing() -> None:
    assert TailCache(TailBudget(1 << 20)).find(0) is None


def test_unassigned_offsets_are_not_in_the_tail() -> None:
    tail = TailCache(TailBudget(1 << 20))
    tail.add(run(0, 2))
    tail.add(run(1000, 2))
    assert held(tail, range(2, 1000)) == []
    assert held(tail, range(1000, 1003)) == [1000, 1001]


def test_oldest_runs_of_all_logs_are_evicted_first() -> None:
    cost = run(0, 1).cost_bytes
    budget = TailBudget(3 * cost)
    first, second = TailCache(budget), TailCache(budget)
    first.add(run(0, 1))
    second.add(run(0, 1))
    first.add(run(1, 1))
    second.add(run(1, 1))
    assert held(first, range(3)) == [1]
    assert held(second, range(3)) == [0, 1]
    first.add(run(2, 1))
    assert held(second, range(3)) == [1]
    assert budget.used_bytes == 3 * cost


def test_budget_counts_the_bytes_of_records_and_entries() -> None:
    budget = TailBudget(1 << 20)
    TailCache(budget).add(run(0, 100, 5000))
    assert budget.used_bytes >= 5000 + 100 * ENTRY_BYTES


def test_zero_budget_keeps_no_run_and_counts_correctly() -> None:
    budget = TailBudget(0)
    tail = TailCache(budget)
    for offset in range(5000):
        tail.add(run(offset, 1))
        assert tail.find(offset) is None
    assert budget.used_bytes == 0
    assert len(tail._runs) < 3000, "forgotten runs leave no trail of places behind"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 300)), max_size=60),
    st.integers(0, 3000),
)
def test_tail_is_a_suffix_of_each_log_within_the_budget(
    appends: list[tuple[int, int, int]], limit: int
) -> None:
    budget = TailBudget(limit)
    tails = [TailCache(budget) for _ in range(3)]
    ends = [0, 0, 0]
    for number, count, size in appends:
        tails[number].add(run(ends[number], count, size))
        ends[number] += count
        assert budget.used_bytes <= limit
        for tail, end in zip(tails, ends, strict=True):
            offsets = held(tail, range(end))
            assert offsets == list(range(end - len(offsets), end))
            for offset in offsets:
                found = tail.find(offset)
                assert found is not None
                assert entries_of(found, offset, 1)["position"][0] == offset


def test_reader_thread_never_gets_a_run_without_its_offset() -> None:
    budget = TailBudget(20 * run(0, 1).cost_bytes)
    tail = TailCache(budget)
    end = [0]
    wrong: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for offset in range(max(0, end[0] - 30), end[0]):
                found = tail.find(offset)
                if found is not None and not found.base_offset <= offset < found.end_offset:
                    wrong.append(offset)

    thread = threading.Thread(target=look)
    thread.start()
    for offset in range(0, 40_000, 2):
        tail.add(run(offset, 2))
        end[0] = offset + 2
    stop.set()
    thread.join()
    assert wrong == []


def test_entries_of_a_run_start_anywhere_and_stop_at_its_end() -> None:
    one = run(100, 5)
    assert entries_of(one, 102, 2)["position"].tolist() == [102, 103]
    assert entries_of(one, 103, 99)["position"].tolist() == [103, 104]
    assert entries_of(one, 100, 0)["position"].tolist() == []


def test_memory_of_other_caches_counts_in_the_budget() -> None:
    cost = run(0, 1).cost_bytes
    budget = TailBudget(3 * cost)
    tail = TailCache(budget)
    for offset in range(3):
        tail.add(run(offset, 1))
    budget.lend(2 * cost)
    assert [tail.find(offset) is not None for offset in range(3)] == [False, False, True]
    budget.lend(5 * cost)
    tail.add(run(3, 1))
    assert tail.find(3) is None, "more is lent than there is: nothing is kept, nothing breaks"
    budget.lend(-7 * cost)
    tail.add(run(4, 1))
    assert (tail.find(4) is not None, budget.used_bytes) == (True, cost)


def test_closed_budget_keeps_no_run() -> None:
    budget = TailBudget(1 << 20)
    tail = TailCache(budget)
    tail.add(run(0, 3))
    budget.close()
    tail.add(run(3, 3))
    assert (held(tail, range(6)), budget.used_bytes) == ([], 0)


def test_runs_are_gathered_up_to_the_limits_and_to_the_end_of_their_segment() -> None:
    tail = TailCache(TailBudget(1 << 20))
    at = 0
    for base in range(0, 20, 2):
        if base == 16:
            at = 0  # another segment
        entries = np.zeros(2, dtype=ENTRY)
        entries["position"], entries["length"] = [at, at + 5], 5
        stored = StoredBytes((b"%02d---%02d---" % (base, base + 1),), 10)
        tail.add(TailRun(base, base + 2, entries.tobytes(), stored, at))
        at += 10

    def gathered(offset: int, records: int, size: int) -> tuple[int, int, bytes]:
        found = joined(tail.gather(offset, records, size))
        assert len(found.entries) == (found.end_offset - found.base_offset) * ENTRY_BYTES
        return found.base_offset, found.end_offset, found.stored.joined()

    assert gathered(1, 1, 100) == (0, 2, b"00---01---")
    assert gathered(1, 2, 100) == (0, 4, b"00---01---02---03---")
    assert gathered(0, 100, 11)[:2] == (0, 4)
    assert gathered(0, 100, 20)[:2] == (0, 4)
    assert gathered(1, 100, 16)[:2] == (0, 6), "what lies in front of the offset does not count"
    assert gathered(3, 100, 1000)[:2] == (2, 16), "positions restart in the next segment"
    assert gathered(17, 100, 1000)[:2] == (16, 20)
    assert gathered(19, 100, 1000)[:2] == (18, 20)
    assert tail.gather(20, 1, 1) == []


def test_adjacent_runs_give_as_many_records_as_the_limits_allow() -> None:
    runs = []
    for base, count in ((0, 3), (3, 4), (7, 1)):
        entries = np.zeros(count, dtype=ENTRY)
        entries["position"], entries["length"] = 10 * np.arange(base, base + count), 10
        stored = StoredBytes((bytes(10 * count),), 10 * count)
        runs.append(TailRun(base, base + count, entries.tobytes(), stored, 10 * base))

    def fitting(offset: int, records: int, size: int) -> int:
        found = fitting_count(runs, offset, records, size)
        entries, data, position = joined_columns(runs, offset, found)
        assert len(entries) == found
        assert entries["position"][0] - position < len(data if isinstance(data, bytes) else data())
        return found

    assert [fitting(0, 99, 1000), fitting(2, 99, 1000)] == [8, 6]
    assert [fitting(0, 8, 79), fitting(0, 8, 80)] == [7, 8], (
        "the last run is left out if its record does not fit"
    )
    assert [fitting(2, 8, 59), fitting(2, 8, 60)] == [5, 6], "what lies in front of the offset does not count"
    assert fitting_count(runs[:1], 1, 9, 1) == 1, "at least one"


@pytest.mark.parametrize("pieces", [1, 3])
def test_run_gives_single_records_wherever_their_bytes_lie(pieces: int) -> None:
    entries = np.zeros(3, dtype=ENTRY)
    entries["position"], entries["length"], entries["topic"] = [50, 52, 52], [2, 0, 3], [0, 1, 7]
    entries["timestamp_us"] = [5, 6, 7]
    stored = StoredBytes((b"ab", b"", b"cde") if pieces == 3 else (b"abcde",), 5)
    one = TailRun(100, 103, entries.tobytes(), stored, 50)
    assert [one.record(offset, ["t", None]) for offset in (100, 101, 102)] == [
        Record(100, 5, "t", b"ab"),
        Record(101, 6, None, b""),
        Record(102, 7, None, b"cde"),
    ]
    entries["header_length"] = 1
    assert TailRun(100, 103, entries.tobytes(), stored, 50).record(100, ["t"]) is None
