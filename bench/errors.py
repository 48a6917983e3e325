"""Errors of benchmarks."""

from timestone_cli.errors import CommandError


class BenchmarkError(CommandError):
    """The benchmark cannot run here, or its result is not reliable. The text is one line for the user."""
