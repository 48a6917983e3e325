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
