"""What do many topics in one log cost, against the same records under one topic?

Two logs of one store, the same payloads in the same batches, taking turns: one has a single topic, the other as many as
asked for, in random order. Appends go by a column of topic ids, as a front's do, and by name. Then the store is opened
again and read through filters.
"""

import functools
import random
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

import timestone
from timestone import Draft, Log
from timestone_cli.group import Command

from .environment import probe_environment
from .options import POSITIVE, Progress, directory_option, json_option, progress_line, repeat_option
from .report import print_report
from .working_directory import working_directory
from .workload import Workload

_BATCH = 1000
_RECORD_BYTES = 100
_SEED = 20261121


@dataclass(slots=True)
class Result:
    """Medians; ratios are taken within each repeat."""

    topics: int
    records: int
    add_s: float = 0.0
    """All topics added and written."""
    memory_mb: float = 0.0
    open_s: float = 0.0
    append_ratio: float = 0.0
    append_names_ratio: float = 0.0
    reads_s: dict[str, float] = field(default_factory=dict)
    """A whole scan for one topic, for a filter with wildcards, and for everything."""


@click.command(cls=Command)
@click.option("--topics", metavar="N", type=POSITIVE, default=100_000, help="Topics of the one log.")
@click.option("--count", metavar="N", type=POSITIVE, default=500_000, help="Records a log.")
@repeat_option(5, "Turns.")
@directory_option()
@json_option
def command(topics: int, count: int, repeat: int, directory: Path, as_json: bool) -> None:
    """A log with many topics beside one with a single topic."""
    progress = progress_line()
    with working_directory(directory) as root:
        result = measure(root, topics, count, repeat, progress)
        environment = probe_environment(root)
    progress("")
    lines = [
        f"{result.topics:,} topics: added in {result.add_s:.2f} s, {result.memory_mb:.0f} MB of memory",
        f"the store opens in {result.open_s:.2f} s",
        f"append by topic id: {result.append_ratio:.2f} of the rate with one topic",
        f"append by topic name: {result.append_names_ratio:.2f} of the rate with one topic",
        *(
            f"read {what} of {result.records:,} records: {elapsed_s:.3f} s"
            for what, elapsed_s in result.reads_s.items()
        ),
    ]
    print_report("many-topics", asdict(result), environment, lines, as_json=as_json)


def measure(directory: Path, topics: int, count: int, repeat: int, progress: Progress) -> Result:
    """Fill both logs, and read them again."""
    result = Result(topics, 0)
    shuffled = random.Random(_SEED)
    names = [f"sites/{number % 100}/devices/{number:06d}/telemetry" for number in range(topics)]
    chunks = [one for one in Workload(_RECORD_BYTES, count).chunks(_BATCH) if one]
    with timestone.open(directory / "data", ack="written", min_free_bytes=0) as store:
        one, many = store.log("one"), store.log("many")
        progress("adding topics")
        before_mb, start = _memory_mb(), time.perf_counter()
        ids = [many.topic_id(name) for name in names]
        many.append(b"", topic=names[0])
        result.add_s, result.memory_mb = time.perf_counter() - start, _memory_mb() - before_mb
        single = one.topic_id(names[0])
        places = [[shuffled.randrange(topics) for _ in chunk] for chunk in chunks]
        by_id = (
            _drafts(one, [[single] * len(chunk) for chunk in chunks], chunks),
            _drafts(many, [[ids[place] for place in some] for some in places], chunks),
        )
        by_name = (
            _batches(one, [[names[0]] * len(chunk) for chunk in chunks], chunks),
            _batches(many, [[names[place] for place in some] for some in places], chunks),
        )
        ratios: dict[str, list[float]] = {"id": [], "name": []}
        for number in range(repeat):
            for kind, (first, second) in (("id", by_id), ("name", by_name)):
                progress(f"appending by {kind}, turn {number + 1} of {repeat}")
                ratios[kind].append(_seconds(first) / _seconds(second))
        result.append_ratio, result.append_names_ratio = map(statistics.median, ratios.values())
        result.records = many.end_offset
    start = time.perf_counter()
    with timestone.open(directory / "data", min_free_bytes=0) as store:
        result.open_s = time.perf_counter() - start
        many = store.log("many", create=False)
        filters = {
            "one topic": names[topics // 2],
            "one site in a hundred": "sites/7/devices/+/#",
            "everything": None,
        }
        for what, chosen in filters.items():
            progress(f"reading {what}")
            result.reads_s[what] = statistics.median(
                _seconds([functools.partial(_scan, many, chosen)]) for _ in range(repeat)
            )
    return result


def _drafts(
    log: Log, topics: Sequence[list[int]], chunks: Sequence[list[bytes]]
) -> list[Callable[[], object]]:
    return [
        functools.partial(_append_draft, log, chunk, np.array(ids, dtype=np.uint32))
        for ids, chunk in zip(topics, chunks, strict=True)
    ]


def _append_draft(log: Log, chunk: list[bytes], ids: npt.NDArray[np.uint32]) -> None:
    log.append_draft(Draft(chunk, ids))


def _batches(
    log: Log, topics: Sequence[list[str]], chunks: Sequence[list[bytes]]
) -> list[Callable[[], object]]:
    return [
        functools.partial(log.append_many, chunk, topics=names)
        for names, chunk in zip(topics, chunks, strict=True)
    ]


def _seconds(calls: Sequence[Callable[[], object]]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - start


def _scan(log: Log, topics: str | None) -> int:
    count, reader = 0, log.reader(topics=topics)
    while batch := reader.read():
        count += len(batch)
    return count


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
