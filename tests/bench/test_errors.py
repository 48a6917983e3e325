from timestone_bench import segment_throughput
from timestone_bench.errors import BenchmarkError


def test_every_benchmark_offers_the_error_that_the_command_translates() -> None:
    assert segment_throughput.BenchmarkError is BenchmarkError
