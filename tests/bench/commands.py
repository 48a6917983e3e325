"""Runs a benchmark in this process, as `timestone bench` does."""

import click


def run(command: click.Command, *words: str) -> int:
    """Run it with these words; returns the exit code, raises what it raises."""
    return command.main(list(words), command.name, standalone_mode=False) or 0
