"""`python -m timestone_cli` is the `timestone` command."""

from .main import main

if __name__ == "__main__":
    raise SystemExit(main())
