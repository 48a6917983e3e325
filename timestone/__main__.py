"""`python -m timestone` runs the command `timestone`, which the package installs beside the engine."""

import sys
from importlib.metadata import entry_points


def main() -> int:
    """Run the command with the arguments of the process; return its exit code."""
    commands = entry_points(group="console_scripts", name="timestone")
    if not commands:
        print("timestone: the command is not installed; in a clone: pip install -e .", file=sys.stderr)  # noqa: T201
        return 1
    return int(next(iter(commands)).load()())


if __name__ == "__main__":
    raise SystemExit(main())
