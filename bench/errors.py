"""Why a benchmark gave no answer."""


class BenchmarkError(Exception):
    """The benchmark cannot run here, or cannot be believed. The text is one line for the user."""
