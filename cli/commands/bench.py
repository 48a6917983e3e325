"""`timestone bench`: finds the benchmark asked for; each is a module of the bench package that answers one question."""

import argparse
import importlib
from functools import partial
from types import ModuleType

from ..errors import CommandError
from ..output.progress import ProgressLine
from ..parser import CommandParser

BENCHMARKS = {
    "segment-throughput": (
        "timestone_bench.segment_throughput",
        "appends and reads of one log against pwrite and pread of the same bytes",
    ),
    "opening": ("timestone_bench.opening", "opening a store whose owner was killed"),
    "many-topics": ("timestone_bench.many_topics", "a log with many topics against one with a single topic"),
    "scale": (
        "timestone_bench.scale",
        "what 100,000 topics take, and thousands of logs that were not closed",
    ),
    "spark": ("timestone_bench.spark_read", "scans by Spark, against Parquet and text of the same rows"),
    "compression": (
        "timestone_bench.compression",
        "a compressed log against a raw one: size, bulk and single reads",
    ),
    "mqtt": ("timestone_bench.mqtt.command", "MQTT under load: Timestone, and other servers beside it"),
    "peers": ("timestone_bench.peers", "MQTT beside mosquitto and nats-server, where they are installed"),
    "startup": ("timestone_bench.startup", "how soon commands answer and the server is ready"),
    "system-calls": (
        "timestone_bench.system_calls",
        "sendmsg, sendfile, splice and io_uring beside the calls that are used",
    ),
    "kernels": ("timestone_bench.kernels", "the compiled per-record loops against their twins in Python"),
}

EXAMPLES = """\
examples:
  timestone bench segment-throughput
  timestone bench segment-throughput --record-bytes 100 --count 1000000 --json > result.json
  timestone bench segment-throughput --quick --plot throughput.png
  timestone bench spark --quick
  timestone bench mqtt fan-in --against mosquitto=127.0.0.1:1884
"""

_EXTRAS = {"pyspark": "spark", "pyarrow": "spark"}
"""What brings a package that a benchmark needs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One inner command a benchmark."""
    parser.description = "Measure this machine with Timestone and without it, in one run."
    parser.epilog = EXAMPLES
    benchmarks = parser.add_subparsers(
        title="benchmarks", metavar="BENCHMARK", dest="benchmark", required=True
    )
    for name, (module, summary) in BENCHMARKS.items():
        inner = benchmarks.add_parser(name, help=summary)
        assert isinstance(inner, CommandParser)
        # Only when it is the one: some benchmarks import half a gigabyte of software, which may not be installed.
        inner.fill = partial(_fill, module)


def _fill(module: str, parser: argparse.ArgumentParser) -> None:
    _module(module).add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark that was chosen."""
    module = _module(BENCHMARKS[arguments.benchmark][0])
    with ProgressLine() as progress:
        try:
            return int(module.run(arguments, progress.show))
        except module.BenchmarkError as error:
            raise CommandError(str(error)) from error


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        how = f": pip install 'timestone[{_EXTRAS[error.name]}]'" if error.name in _EXTRAS else ""
        raise CommandError(f"this benchmark needs {error.name}, which is not installed{how}") from error
