"""Reader of the lines of a file descriptor, in lists: all that have arrived, many at a time, without delay."""

import os
import select

from ..errors import CommandError

_CHUNK_BYTES = 1 << 20
_PATIENCE_S = 0.2
"""How long `read` waits for input before it returns nothing, so that its caller can do other work."""


class LineReader:
    """Reader of lines, returned without their newline. A line over `limit_bytes` ends the reading with an error that
    states its number."""

    def __init__(self, fd: int, limit_bytes: int) -> None:
        self.ended = False
        self._fd = fd
        self._limit_bytes = limit_bytes
        self._count = 0
        self._rest: list[bytes] = []  # pieces of the line that has no newline yet
        self._rest_bytes = 0
        self._problem: CommandError | None = None

    def read(self) -> list[bytes]:
        """Return the lines that have arrived, up to about a megabyte; empty if nothing arrived for a moment.

        At the end of the input, sets `ended` and returns the last line even without a newline after it. Raises
        CommandError for a line over the limit, after the lines before it were returned."""
        if self._problem is not None:
            raise self._problem
        data = self._arrived()
        if data is None:
            return []
        if not data:
            self.ended = True
            return self._checked([b"".join(self._rest)]) if self._rest else []
        head, newline, tail = data.rpartition(b"\n")
        lines: list[bytes] = []
        if newline:
            lines = (b"".join(self._rest) + head).split(b"\n")
            self._rest.clear()
            self._rest_bytes = 0
        if tail:
            self._rest.append(tail)
            self._rest_bytes += len(tail)
        return self._checked(lines)

    def _arrived(self) -> bytes | None:
        """Return the bytes that can be read at once; b"" at the end, None if nothing arrives for a moment."""
        if not select.select([self._fd], [], [], _PATIENCE_S)[0]:
            return None
        pieces = [os.read(self._fd, _CHUNK_BYTES)]
        # A pipe gives at most 64 KiB at a time. Larger batches cost the log less, so read all that is available.
        size = len(pieces[0])
        while pieces[-1] and size < _CHUNK_BYTES and select.select([self._fd], [], [], 0)[0]:
            pieces.append(os.read(self._fd, _CHUNK_BYTES - size))
            size += len(pieces[-1])
        return b"".join(pieces)

    def _checked(self, lines: list[bytes]) -> list[bytes]:
        good = lines
        if lines and max(map(len, lines)) > self._limit_bytes:
            good = lines[: next(row for row, line in enumerate(lines) if len(line) > self._limit_bytes)]
        self._count += len(good)
        if len(good) < len(lines) or self._rest_bytes > self._limit_bytes:
            self._problem = CommandError(
                f"line {self._count + 1} is over the log's limit of {self._limit_bytes:,} bytes"
            )
            if not good:
                raise self._problem
        return good
