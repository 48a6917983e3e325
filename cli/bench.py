"""`timestone bench`: finds the benchmark asked for; each is a module of the bench package that answers one question."""

import argparse
import importlib
from types import ModuleType

from .errors import CommandError
from .progress import ProgressLine

BENCHMARKS = {
    "segment-throughput": (
        "timestone_bench.segment_throughput",
        "appends and reads of one log against pwrite and pread of the same bytes",
    ),
}

EXAMPLES = """\
examples:
  timestone bench segment-throughput
  timestone bench segment-throughput --record-bytes 100 --count 1000000 --json > result.json
  timestone bench segment-throughput --quick --plot throughput.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One inner command a benchmark."""
    parser.description = "Measure this machine with Timestone and without it, in one run."
    parser.epilog = EXAMPLES
    benchmarks = parser.add_subparsers(
        title="benchmarks", metavar="BENCHMARK", dest="benchmark", required=True
    )
    for name, (module, summary) in BENCHMARKS.items():
        _module(module).add_arguments(benchmarks.add_parser(name, help=summary))


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark that was chosen."""
    module = _module(BENCHMARKS[arguments.benchmark][0])
    with ProgressLine() as progress:
        try:
            return int(module.run(arguments, progress.show))
        except module.BenchmarkError as error:
            raise CommandError(str(error)) from error


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)
