"""Why a benchmark gave no answer."""

from timestone_cli.errors import CommandError


class BenchmarkError(CommandError):
    """The benchmark cannot run here, or its result cannot be trusted. The text is one line for the user."""
