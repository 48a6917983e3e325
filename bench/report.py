"""What a benchmark without a table prints at its end: the machine and some lines, or one JSON object with both."""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from .environment import Environment


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`, for `print_report`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def print_report(
    name: str, result: Mapping[str, object], environment: Environment, lines: Iterable[str], *, as_json: bool
) -> None:
    """`result` as JSON with the machine that it was measured on, or the same as `lines` below it."""
    if as_json:
        print(json.dumps({"benchmark": name, "environment": asdict(environment), "result": result}, indent=2))
        return
    for line in (*environment.lines(), *lines):
        print(line)
