"""A log compared with the file system beneath it.

Each append and read runs beside the system call that it consists of, on the same bytes in the same chunks, in one
process, in turn; the ratio of the two depends least on the machine.
"""

import tempfile
from pathlib import Path

import click

from timestone.config import Ack
from timestone_cli.group import Command
from timestone_cli.output.json_object import print_json

from ..environment import Environment, probe_environment
from ..errors import BenchmarkError
from ..measurement import Measurement
from ..options import (
    POSITIVE,
    Progress,
    directory_option,
    json_option,
    plot_option,
    plot_writer,
    progress_line,
    quick_option,
    repeat_option,
)
from ..working_directory import working_directory
from .cases import Case
from .segment_reads import PreparedLog, read_cases
from .segment_writes import CHUNKS, write_cases
from .throughput_result import Result, build_rows
from .throughput_table import print_result
from .workload import Workload

_COUNT, _QUICK_COUNT = 128 * 1024, 32 * 1024
_REPEAT, _QUICK_REPEAT = 5, 3
_WARM_UP_COUNT = 2048
_ENTRY_BYTES = 32
_SHORT_S = 0.02
"""In a run shorter than this, a single burst of page faults or a scheduler's tick distorts the result."""

EXAMPLES = """\
Examples:
  timestone bench segment-throughput
  timestone bench segment-throughput --record-bytes 100 --json > result.json
  timestone bench segment-throughput --quick --plot throughput.png

Rows named pwrite and pread are the bare system calls; each indented row is the
log doing the same with records. About count x record-bytes x repeat x 8 bytes
are written into a directory of its own under --dir, which is removed. See
docs/benchmarks.md for how to read the result.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--record-bytes", metavar="N", type=POSITIVE, default=1024, help="Size of a record.")
@click.option(
    "--count",
    metavar="N",
    type=POSITIVE,
    help=f"Records a row.  [default: {_COUNT}; with --quick: {_QUICK_COUNT}]",
)
@click.option(
    "--ack",
    type=click.Choice([level.value for level in Ack]),
    default=Ack.WRITTEN.value,
    help="What the append rows wait for; the synced row waits for its own.",
)
@repeat_option(_REPEAT, quick=_QUICK_REPEAT)
@quick_option
@directory_option()
@json_option
@plot_option
def command(
    record_bytes: int,
    count: int | None,
    ack: str,
    repeat: int | None,
    quick: bool,
    directory: Path,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Appends and reads of one log beside pwrite and pread of the same bytes."""
    progress = progress_line()
    write_plot = plot_writer(plot, f"{__package__}.throughput_plot")
    count = count or (_QUICK_COUNT if quick else _COUNT)
    repeat = repeat or (_QUICK_REPEAT if quick else _REPEAT)
    workload = Workload(record_bytes, count)
    with working_directory(directory) as work:
        environment = probe_environment(work)
        _check_space(environment, workload)
        runs, cases = measure_cases(workload, Ack(ack), repeat, work, progress)
    progress("")
    rows = build_rows(cases, runs)
    warnings = environment.warnings(workload.size_bytes)
    short = [case.name for case in cases if min(run.elapsed_s for run in runs[case.name]) < _SHORT_S]
    if short:
        warnings.append(
            f"under {_SHORT_S * 1000:.0f} ms a run, too short to mean much: {', '.join(short)} (--count raises it)"
        )
    parameters = {"record_bytes": workload.record_bytes, "count": count, "ack": ack, "repeat": repeat}
    result = Result(parameters=parameters, environment=environment, warnings=warnings, rows=rows)
    if write_plot is not None:
        write_plot(result, plot)
    if as_json:
        print_json(result.to_json())
    else:
        print_result(result)


def measure_cases(
    workload: Workload, ack: Ack, repeat: int, directory: Path, progress: Progress
) -> tuple[dict[str, list[Measurement]], list[Case]]:
    """Run every case `repeat` times in `directory`, which is empty again afterwards except for the prepared log."""
    progress("warming up")
    few = workload.shortened(_WARM_UP_COUNT)
    for case in [*write_cases(few, ack), *read_cases(PreparedLog(directory / "warm-up", few))]:
        _run(case, directory)
    progress("preparing the log to read")
    cases = [*write_cases(workload, ack), *read_cases(PreparedLog(directory / "prepared", workload))]
    runs: dict[str, list[Measurement]] = {case.name: [] for case in cases}
    for number in range(repeat):
        # All rows in turn within each repeat, and every other repeat backwards: a disk that slows down as it fills, or
        # other work that begins, then affects a row and its raw row alike.
        for place, case in enumerate(cases if number % 2 == 0 else reversed(cases)):
            progress(f"repeat {number + 1} of {repeat}, row {place + 1} of {len(cases)}: {case.name}")
            runs[case.name].append(_run(case, directory))
    return runs, cases


def _run(case: Case, directory: Path) -> Measurement:
    with tempfile.TemporaryDirectory(dir=directory) as own:
        return case.run(Path(own))


def _check_space(environment: Environment, workload: Workload) -> None:
    # The prepared log with its index, the touched memory of a row or twice its bytes, and the free space a store
    # demands.
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
