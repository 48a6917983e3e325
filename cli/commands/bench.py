"""`timestone bench`: the table of benchmarks; each is a module of the bench package that answers one question."""

import click

from ..errors import CommandError
from ..group import Entry, LazyGroup

BENCHMARKS = {
    "Engine": {
        "segment-throughput": Entry(
            "timestone_bench.engine.segment_throughput", "Appends and reads beside pwrite and pread."
        ),
        "opening": Entry("timestone_bench.engine.opening", "Opening a store whose owner was killed."),
        "scale": Entry(
            "timestone_bench.engine.scale", "100,000 topics; thousands of logs that were not closed."
        ),
    },
    "MQTT": {
        "mqtt": Entry("timestone_bench.mqtt.command", "MQTT under load, also beside other servers."),
        "peers": Entry("timestone_bench.peers", "MQTT beside the mosquitto and nats-server installed."),
    },
    "Cluster": {
        "cluster": Entry(
            "timestone_bench.cluster.command", "Three nodes beside one, NATS, Kafka and RabbitMQ."
        ),
        "sizing": Entry(
            "timestone_bench.sizing.command", "What fleets of devices need, from measured costs."
        ),
    },
    "Others": {
        "console": Entry(
            "timestone_bench.console.command", "The console: what it costs a server, how fast it answers."
        ),
        "flight": Entry(
            "timestone_bench.flight.command",
            "Arrow Flight beside the library, MQTT and a bare Flight server.",
        ),
        "spark": Entry(
            "timestone_bench.spark_read", "Scans by Spark beside Parquet and text of the same rows."
        ),
        "tier": Entry(
            "timestone_bench.tier.command", "Uploads and scans of a bucket beside obstore and Parquet."
        ),
        "compare": Entry("timestone_bench.compare", "Two checkouts of Timestone in turns."),
        "pipeline": Entry(
            "timestone_bench.pipeline", "The pipeline beside a plain Spark job with the same steps."
        ),
        "startup": Entry("timestone_bench.startup", "How soon commands answer and the server is ready."),
    },
}

EXAMPLES = """\
Examples:
  timestone bench segment-throughput
  timestone bench segment-throughput --record-bytes 100 --json > result.json
  timestone bench segment-throughput --quick --plot throughput.png
  timestone bench spark --quick
  timestone bench mqtt fan-in --against mosquitto=127.0.0.1:1884
"""

_EXTRAS = {"pyspark": "spark", "pyarrow": "spark", "obstore": "s3", "grpc": "flight", "msgspec": "cluster"}
"""The extra that installs a package which a benchmark needs."""


class _Benchmarks(LazyGroup):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            return super().get_command(ctx, cmd_name)
        except ModuleNotFoundError as error:
            how = f": pip install '.[{_EXTRAS[error.name]}]' in a clone" if error.name in _EXTRAS else ""
            raise CommandError(f"{cmd_name} needs {error.name}, which is not installed{how}") from error


command = _Benchmarks(
    "bench",
    table=BENCHMARKS,
    help="Measure this machine with Timestone and without it, in one run.",
    epilog=EXAMPLES,
    subcommand_metavar="BENCHMARK [ARGS]...",
)
