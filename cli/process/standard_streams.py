"""Standard input, output and error: open at the start, quiet at the end."""

import os
import sys


def open_standard_streams() -> None:
    """Open closed streams (`<&-`, a service manager without a terminal) on /dev/null.

    Python has None in their place. The next file to be opened would get the descriptor of one, and what C code or a
    child such as Java writes to standard error would land in a segment.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number: in this order, that of the stream.
            fd = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the process lasts


def give_up_broken_streams() -> None:
    """Redirect standard output and error to /dev/null when what is left in them cannot be written, because the disk
    is full or the reader has left. The interpreter would try again when it ends, print lines of its own, and end with
    an exit code of another meaning."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
