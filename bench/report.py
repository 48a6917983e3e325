"""The output of a benchmark: the machine and some lines, or one JSON object with both."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from timestone_cli.output.json_object import print_json
from timestone_cli.output.text import print_text

from .environment import Environment


def print_report(
    name: str, result: Mapping[str, object], environment: Environment, lines: Iterable[str], *, as_json: bool
) -> None:
    """Print `result` as JSON with the machine of the measurement, or the machine and `lines`."""
    if as_json:
        print_json({"benchmark": name, "environment": asdict(environment), "result": result})
        return
    for line in (*environment.lines(), *lines):
        print_text(line)
