"""How close does a log come to the file system beneath it?

Each append and read runs beside the system call it is made of, on the same bytes in the same chunks, in one process,
taking turns; the ratio of the two is what a change of machine leaves standing.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from timestone.config import Ack

from .cases import Case
from .environment import Environment, probe_environment
from .errors import BenchmarkError
from .measurement import Measurement
from .options import add_directory, plot_writer, positive
from .segment_reads import PreparedLog, read_cases
from .segment_writes import CHUNKS, write_cases
from .throughput_result import Result, build_rows
from .throughput_table import print_result
from .working_directory import working_directory
from .workload import Workload

__all__ = ["BenchmarkError", "add_arguments", "run"]

Progress = Callable[[str], None]
"""Shows how far it is; without a text it makes room for other output."""
_COUNT, _QUICK_COUNT = 128 * 1024, 32 * 1024
_REPEAT, _QUICK_REPEAT = 5, 3
_WARM_UP_COUNT = 2048
_ENTRY_BYTES = 32
_SHORT_S = 0.02
"""A run shorter than this is within reach of a single page fault storm or a scheduler's tick."""

EXAMPLES = """\
examples:
  timestone bench segment-throughput
  timestone bench segment-throughput --record-bytes 100 --count 1000000 --json > result.json
  timestone bench segment-throughput --quick --plot throughput.png

Rows named pwrite and pread are the bare system calls; each indented row is the log doing the
same with records. About count x record-bytes x repeat x 8 bytes are written into a directory of
its own under --dir, which is removed. docs/benchmarks.md says how to read the result.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.description = "Appends and reads of one log against pwrite and pread of the same bytes."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--record-bytes", type=positive, default=1024, metavar="N", help="size of a record (default: 1024)"
    )
    parser.add_argument(
        "--count",
        type=positive,
        metavar="N",
        help=f"records a row (default: {_COUNT}; quick: {_QUICK_COUNT})",
    )
    parser.add_argument(
        "--ack", choices=[level.value for level in Ack], default=Ack.WRITTEN.value,
        help="what the append rows wait for (default: written; the synced row has its own)",
    )  # fmt: skip
    parser.add_argument(
        "--repeat",
        type=positive,
        metavar="N",
        help=f"runs of each row (default: {_REPEAT}; quick: {_QUICK_REPEAT})",
    )
    parser.add_argument("--quick", action="store_true", help="a rough answer in seconds")
    add_directory(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the rows as bars")


def run(arguments: argparse.Namespace, progress: Progress) -> int:
    """Measure and report. Raises BenchmarkError when it cannot run here."""
    write_plot = plot_writer(arguments.plot, f"{__package__}.throughput_plot")
    count = arguments.count or (_QUICK_COUNT if arguments.quick else _COUNT)
    repeat = arguments.repeat or (_QUICK_REPEAT if arguments.quick else _REPEAT)
    workload, ack = Workload(arguments.record_bytes, count), Ack(arguments.ack)
    with working_directory(arguments.dir) as directory:
        environment = probe_environment(directory)
        _check_space(environment, workload)
        runs, cases = measure_cases(workload, ack, repeat, directory, progress)
    progress("")
    rows = build_rows(cases, runs)
    warnings = environment.warnings(workload.size_bytes)
    short = [case.name for case in cases if min(run.elapsed_s for run in runs[case.name]) < _SHORT_S]
    if short:
        warnings.append(
            f"under {_SHORT_S * 1000:.0f} ms a run, too short to mean much: {', '.join(short)} (--count raises it)"
        )
    parameters = {"record_bytes": workload.record_bytes, "count": count, "ack": ack.value, "repeat": repeat}
    result = Result(parameters=parameters, environment=environment, warnings=warnings, rows=rows)
    if write_plot is not None:
        write_plot(result, arguments.plot)
    if arguments.json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        print_result(result)
    return 0


def measure_cases(
    workload: Workload, ack: Ack, repeat: int, directory: Path, progress: Progress
) -> tuple[dict[str, list[Measurement]], list[Case]]:
    """Run every case `repeat` times in `directory`, which is empty again afterwards but for the prepared log."""
    progress("warming up")
    few = workload.shortened(_WARM_UP_COUNT)
    for case in [*write_cases(few, ack), *read_cases(PreparedLog(directory / "warm-up", few))]:
        _run(case, directory)
    progress("preparing the log to read")
    cases = [*write_cases(workload, ack), *read_cases(PreparedLog(directory / "prepared", workload))]
    runs: dict[str, list[Measurement]] = {case.name: [] for case in cases}
    for number in range(repeat):
        # All rows in turn within each repeat, and every other repeat backwards: a disk that slows down as it fills, or
        # a neighbour that wakes up, then hits a row and its raw peer alike.
        for place, case in enumerate(cases if number % 2 == 0 else reversed(cases)):
            progress(f"repeat {number + 1} of {repeat}, row {place + 1} of {len(cases)}: {case.name}")
            runs[case.name].append(_run(case, directory))
    return runs, cases


def _run(case: Case, directory: Path) -> Measurement:
    with tempfile.TemporaryDirectory(dir=directory) as own:
        return case.run(Path(own))


def _check_space(environment: Environment, workload: Workload) -> None:
    # The prepared log with its index, beside it a row or twice its bytes touched, and what a store wants left free.
    needed = (
        3 * (workload.size_bytes + workload.count * _ENTRY_BYTES)
        + max(CHUNKS) * workload.record_bytes
        + (256 << 20)
    )
    if environment.free_bytes < needed:
        raise BenchmarkError(
            f"{needed / 1e6:,.0f} MB are needed, {environment.free_bytes / 1e6:,.0f} MB are free; "
            "lower --count or choose another --dir"
        )
