"""Run the programs of a page one after the other in one process, so that they share one Java.

    python -P page_programs.py MARK

Reads names of files from its standard input, one a line, runs each as `python NAME` would, and prints MARK when it is
done. A failing program ends all, as it ends the page.
"""

import runpy
import sys


def main(mark: str) -> None:
    # Where `python NAME` would look first.
    sys.path.insert(0, "")
    for line in sys.stdin:
        name = line.strip()
        sys.argv = [name]
        runpy.run_path(name, run_name="__main__")
        print(mark, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
