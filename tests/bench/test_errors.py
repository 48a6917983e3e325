from timestone_bench.errors import BenchmarkError
from timestone_cli.errors import CommandError


def test_an_error_of_a_benchmark_is_an_answer_for_the_user() -> None:
    assert issubclass(BenchmarkError, CommandError)
