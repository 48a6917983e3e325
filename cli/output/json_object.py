"""The result of a command for a program: one JSON object on standard output."""

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_json(found: Mapping[str, Any]) -> None:
    """Print one JSON object, indented so that a person can read it as well. Raises TypeError for what JSON cannot
    say."""
    json.dump(found, sys.stdout, indent=2)
    print()
