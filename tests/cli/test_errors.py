from timestone_cli.errors import CommandError, UsageError


def test_wrong_usage_has_an_exit_code_of_its_own() -> None:
    """`inspect` says 0 to 4 with its exit code, so no mistake in the command line may look like one of them."""
    assert UsageError("x").exit_code not in range(5)
    assert CommandError("x").exit_code is None
