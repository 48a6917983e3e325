"""Memory that the gateway shares with the server, for the batches of a DoPut: a batch is copied into a slot, and a
reference of a few bytes goes through the socket in its place, where it would be copied four times more.

The server grants slots to a call. The gateway fills those that are empty, and the server empties a slot when the last
view of its batch is gone. A slot is granted again when its call has ended and nothing views it; the gateway then takes
it from a call that has not noticed its end. Without an empty slot a batch goes through the socket, whose flow control
holds up the client."""

import mmap
import os
import struct
import tempfile
import weakref
from collections.abc import Sequence

import numpy as np

_SLOT_COUNT = 32
SLOT_BYTES = (2 << 20) + (64 << 10)
"""Room for a batch of the usual sizes; a larger one goes through the socket."""
_SIZE_BYTES = _SLOT_COUNT * SLOT_BYTES + _SLOT_COUNT
_LEAST_BYTES = 32 * 1024
"""A smaller message costs no more through the socket."""
CALL_SLOTS = 4
_REFERENCE = struct.Struct("<BBI")
_MARK = b"\x02"
"""First byte of a reference. No FlightData begins with it: it would be the tag of field 0, which protobuf excludes."""
_INVALID = b"\x00"


def new_memory() -> int:
    """Return the descriptor of new memory, for both processes. Raises OSError."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("timestone-flight")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE_BYTES)
    return fd


class BatchMemory:
    """Memory of one gateway, in either process."""

    def __init__(self, fd: int) -> None:
        """fd: of `new_memory`; may be closed afterwards."""
        self.map = mmap.mmap(fd, _SIZE_BYTES)
        self.full = np.frombuffer(self.map, np.uint8, _SLOT_COUNT, _SLOT_COUNT * SLOT_BYTES)
        """For each slot whether a batch is in it."""
        self.free = list(range(_SLOT_COUNT))
        """Slots that are not granted. Of the server."""
        self.owners: dict[int, CallSlots] = {}
        """Calls that may fill a slot. Of the gateway."""


class Grant:
    """Slots of one call, in the server. Views of batches may outlive it; they end in any thread, where each line here
    is atomic."""

    def __init__(self, memory: BatchMemory) -> None:
        self._memory = memory
        self.slots = [memory.free.pop() for _ in range(min(CALL_SLOTS, len(memory.free)))]
        self._kept = dict.fromkeys(self.slots)
        self._viewed: set[int] = set()
        self._closed = False

    def batch(self, message: bytes) -> memoryview | bytes:
        """Return what a message of the gateway stands for. Raises ValueError."""
        if message[:1] != _MARK:
            return message
        _, slot, size_bytes = _REFERENCE.unpack(message)
        if slot not in self._kept or slot in self._viewed:
            raise ValueError(
                f"invalid reference: expected a slot of this call that is not viewed, got {slot}"
            )
        self._viewed.add(slot)
        found = np.frombuffer(self._memory.map, np.uint8, size_bytes, slot * SLOT_BYTES)
        weakref.finalize(found, self._viewed_no_more, slot)
        return found.data

    def close(self) -> None:
        """Let other calls have the slots, each when nothing views it."""
        self._closed = True
        for slot in self.slots:
            if slot not in self._viewed:
                self._give(slot)

    def _viewed_no_more(self, slot: int) -> None:
        self._memory.full[slot] = 0  # first: from the next line on it may be granted again
        self._viewed.discard(slot)
        if self._closed:
            self._give(slot)

    def _give(self, slot: int) -> None:
        if self._kept.pop(slot, slot) is None:
            self._memory.free.append(slot)


class CallSlots:
    """Slots of one call, in the gateway. Event-loop thread only."""

    def __init__(self, memory: BatchMemory) -> None:
        self._memory = memory
        self._slots: Sequence[int] = ()

    def use(self, slots: Sequence[int]) -> None:
        """Fill these slots from now on."""
        for slot in slots:
            self._memory.owners[slot] = self
            self._memory.full[slot] = 0  # of a call that ended before its batch was viewed
        self._slots = slots

    def message(self, message: bytes) -> bytes:
        """Return what to send to the server for a message of the client: a reference, or the message itself."""
        memory = self._memory
        if _LEAST_BYTES <= len(message) <= SLOT_BYTES:
            for slot in self._slots:
                if memory.owners[slot] is self and not memory.full[slot]:
                    memory.full[slot] = 1
                    at = slot * SLOT_BYTES
                    memory.map[at : at + len(message)] = message
                    return _REFERENCE.pack(_MARK[0], slot, len(message))
        return _INVALID if message[:1] == _MARK else message
