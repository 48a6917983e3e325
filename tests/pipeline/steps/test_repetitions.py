"""The search for repetitions, against the sentence that defines one."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.support.seeds import run_seed, told_on_failure
from timestone_pipeline.steps.repetitions import KEY, MOMENT, REACHED, Search, keyed, repeated

NAMES = ("machine", "count")
MESSAGES = pa.schema(
    {
        "log": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "received_at": pa.timestamp("us", "UTC"),
        "machine": pa.string(),
        "count": pa.int64(),
    }
)
WITHIN_US = 10


def messages(draw: random.Random, offsets: range) -> pa.Table:
    """Return messages of two logs; some have no count."""
    rows = [
        {
            "log": draw.choice("ab"),
            "partition": 0,
            "offset": offset,
            "received_at": max(0, offset + draw.randrange(-9, 10)),
            "machine": draw.choice(["m", "ü", ""]),
            "count": draw.choice([None, *range(6)]),
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, MESSAGES)


def searched(search: Search, history: pa.Table) -> pa.Table:
    """Return what two tasks find."""

    def read(paths: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            yield from history.filter(path["odd"]).select(search.columns).to_batches(max_chunksize=3)

    find = search.of(read, pa.schema([MESSAGES.field(name) for name in search.columns]))
    halves = [[number % 2 == odd for number in range(history.num_rows)] for odd in (0, 1)]
    tasks = [find(iter([pa.RecordBatch.from_pydict({"odd": half})])) for half in halves]
    found = keyed(MESSAGES.empty_table(), NAMES).schema
    return pa.Table.from_batches([one for task in tasks for one in task], found)


@pytest.mark.parametrize("turn", range(8))
def test_repetitions_are_those_of_the_definition(turn: int) -> None:
    interrupted = turn % 2 == 1
    seed = run_seed(f"repetitions {turn}")
    draw = random.Random(seed)
    with told_on_failure(TIMESTONE_SEED=seed):
        history, fresh = messages(draw, range(60)), messages(draw, range(60, 90))
        keys = keyed(fresh, NAMES, "log", "partition", "offset")
        first_us = min(keys[MOMENT].to_pylist())
        limits = {"a": draw.randrange(60), "b": draw.randrange(60)}
        reached = pa.Table.from_pylist(
            [{"log": log, "partition": 0, "offset": at} for log, at in limits.items()], REACHED
        )
        search = Search(
            NAMES, keys.select(KEY), first_us - WITHIN_US, first_us, reached if interrupted else None
        )
        numbers = repeated(keys, searched(search, history), WITHIN_US).to_pylist()
        found = [keys["offset"][number].as_py() for number in numbers]
        if interrupted:
            history = history.filter(
                pa.array([row["offset"] < limits[row["log"]] for row in history.to_pylist()])
            )
        before = [(row["device"], row["sequence"], row[MOMENT]) for row in keyed(history, NAMES).to_pylist()]
        expected = []
        for row in sorted(keys.to_pylist(), key=lambda row: (row[MOMENT], row["log"], row["offset"])):
            device, sequence, moment_us = row["device"], row["sequence"], row[MOMENT]
            if any(one[:2] == (device, sequence) and abs(one[2] - moment_us) <= WITHIN_US for one in before):
                expected.append(row["offset"])
            before.append((device, sequence, moment_us))
        assert sorted(found) == sorted(expected)
