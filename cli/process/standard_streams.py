"""Standard input, output and error as every command may count on them: open, whoever started it."""

import os
import sys


def open_standard_streams() -> None:
    """Open those that were closed (`<&-`, a service manager without a terminal) on /dev/null.

    Python has None in their place. And the next file that is opened would get the number of one: what C code, or a
    child such as Java, says on standard error would land in a segment.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number: in this order, that of the stream.
            fd = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the process lasts


def give_up_broken_streams() -> None:
    """Let standard output and error lead to /dev/null if what is left in them cannot be written: the disk is full, or
    who read it has left. The interpreter would try once more when it ends, complain in lines of its own, and end with
    an exit code that means something else."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
