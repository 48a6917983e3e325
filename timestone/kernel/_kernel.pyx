# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, freethreading_compatible=False
"""Compiled per-record loops of the engine: same names, arguments, results and errors as `timestone.kernel.pure`.

Contents: arithmetic over columns in memory, the system calls that write a column of pieces, and the one that reads a
record. Functions allocate only their results and keep no reference to an argument. Lengths are not trusted: every
position in a buffer is checked against the size of the buffer before it is used. The memory of large results is reused
(`Blocks`). The GIL is released when the work takes long enough for another thread to use the time."""

from cython cimport freelist, no_gc
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyObject_Hash
from cpython.pythread cimport (
    NOWAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock,
    PyThread_type_lock,
)
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from collections import deque
from os import register_at_fork
from time import perf_counter

from timestone.kernel.entries import HEADER_BYTES, NO_TOPIC, SHIPPED_FAULTS
from timestone.record import FLAG_REMOVED, Record

cdef extern from "_crc32c.h" nogil:
    int crc32c_start()
    uint32_t crc32c_of(const uint8_t *data, size_t length)
    uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t crc32c_extend_entry(
        uint32_t crc, uint32_t ordinal, uint64_t first, uint64_t second, uint64_t third, uint32_t last
    )
    uint32_t crc32c_of_portable(const uint8_t *data, size_t length)

cdef extern from "_flush.h" nogil:
    cdef struct flush:
        int[2] fds
        int count, taken, left, error, error_fd, wake_fd
        flush *next
    int flush_begin(flush *begun)
    bint flush_has_ended(flush *begun, bint wait)
    void flush_forked()

cdef extern from "sys/uio.h" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t system_pwritev "pwritev"(int fd, const iovec *vectors, int count, int64_t position)

cdef extern from "unistd.h" nogil:
    ssize_t system_pread "pread"(int fd, void *data, size_t length, int64_t position)
    ssize_t system_pwrite "pwrite"(int fd, const void *data, size_t length, int64_t position)

cdef extern from *:
    """
    #define prefetch(address) __builtin_prefetch(address)

    static inline PyObject *new_of(PyObject *kind, Py_ssize_t size) {
        return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, size);
    }

    /* An instance that the garbage collector does not look at, though its class is one of Python: it holds bytes and
       integers, and stays for long. */
    static inline PyObject *new_object(PyObject *kind, PyObject *arguments) {
        PyObject *made = ((PyTypeObject *)kind)->tp_new((PyTypeObject *)kind, arguments, NULL);
        if (made != NULL && PyObject_IS_GC(made)) {
            PyObject_GC_UnTrack(made);
        }
        return made;
    }

    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS /* the cached hash has to be reset; the field is deprecated */
    static inline void reset_block(PyObject *block, Py_ssize_t size) {
        Py_SET_SIZE((PyVarObject *)block, size);
        ((PyBytesObject *)block)->ob_shash = -1;
        ((PyBytesObject *)block)->ob_sval[size] = 0;
    }
    _Py_COMP_DIAG_POP
    """
    void prefetch(const void *address) nogil
    object new_of(object kind, Py_ssize_t size)
    object new_object(object kind, object arguments)
    void reset_block(object block, Py_ssize_t size)

cdef extern from "pythread.h" nogil:
    ctypedef enum PyLockStatus:
        PY_LOCK_INTR
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible)

cdef extern from "Python.h" nogil:
    ctypedef struct PyTupleObject:
        PyObject **ob_item
    Py_ssize_t Py_REFCNT(object block)
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t number)
    PyObject **PySequence_Fast_ITEMS(object items)
    Py_ssize_t PySequence_Fast_GET_SIZE(object items)
    Py_ssize_t PyTuple_GET_SIZE(object items)
    # The same macros without the GIL: they read an object to which the caller holds a reference.
    char *bytes_in "PyBytes_AS_STRING"(PyObject *piece)
    Py_ssize_t size_of "PyBytes_GET_SIZE"(PyObject *piece)

INTERFACE = 22  # see timestone/kernel/loops.py
CRC32C_BY_INSTRUCTION = bool(crc32c_start())

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *items)
    void PyTuple_SET_ITEM(object items, Py_ssize_t place, object item)
    const char *PyUnicode_AsUTF8AndSize(object name, Py_ssize_t *size) except NULL
    int PyUnicode_CheckExact(object name)
    int PyUnicode_Compare(object one, object other)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef struct Entry:  # `entries.ENTRY` in the four registers that an entry fits into
    uint64_t place  # position, length
    int64_t timestamp_us
    uint64_t marks  # topic, header_length, flags
    uint64_t crcs  # data_crc, entry_crc

cdef enum:
    ENTRY_BYTES = 32
    NAME_HEADER_BYTES = 6
    RUN_COST_BYTES = 300  # as in the twin
    PIECE_COST_BYTES = 41
    INDEX_HEADER_BYTES = 4096
    REMOVED = 16  # FLAG_REMOVED
    IOV_MOST = 1024  # UIO_MAXIOV of Linux
    ROUND = 32
    AHEAD = 20  # payloads to prefetch: they lie scattered in memory
    AHEAD_BYTES = 1024  # bytes of the destination to prefetch: reused blocks are cold
    # Releasing and taking the GIL costs a microsecond without contention and up to the switch interval of 5 ms with
    # it: worth it for work of ten microseconds and more.
    LONG_BYTES = 256 * 1024
    LONG_WRITE_BYTES = 16 * 1024
    INLINE_BYTES = 160 * 1024  # as in the twin
    SMALL_FLUSH_BYTES = 1024 * 1024
    APART_BYTES = 512  # _LARGE_BYTES of `write_batch`

cdef uint64_t U16_MAX = 0xFFFF
cdef uint64_t U32_MAX = 0xFFFFFFFF
assert sizeof(Entry) == ENTRY_BYTES
assert (INDEX_HEADER_BYTES, REMOVED) == (HEADER_BYTES, FLAG_REMOVED)
assert Record._fields == ("offset", "timestamp_us", "topic", "payload", "block", "flags")


@freelist(8)
cdef class View:
    """Contiguous buffer, held for the lifetime of this object."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *data
    cdef Py_ssize_t size

    def __cinit__(self, source):
        PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.data = <const uint8_t *>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef Py_ssize_t count(self, Py_ssize_t item_bytes) except -1:
        return count_of(self.size, item_bytes)


cdef Py_ssize_t count_of(Py_ssize_t size, Py_ssize_t item_bytes) except -1:
    """Return the number of items of `item_bytes`. Raises ValueError when the last one is incomplete."""
    if size % item_bytes:
        raise ValueError(f"invalid column: {size} bytes are not a multiple of {item_bytes}")
    return size // item_bytes


cdef struct Values:  # one a record; the same one for all has a stride of zero bytes
    const uint8_t *at
    Py_ssize_t step
    uint32_t value


cdef View values_of(source, Py_ssize_t item_bytes, Py_ssize_t count, Values *values):
    """Find the values of a column: a buffer, which the returned view holds, or one number for all."""
    cdef View view
    cdef int64_t value
    if isinstance(source, int):
        value = source
        if not 0 <= value <= <int64_t>(U32_MAX if item_bytes == 4 else U16_MAX):
            raise OverflowError(f"{source} does not fit into {item_bytes} bytes")
        values.value, values.step = <uint32_t>value, 0
        values.at = <const uint8_t *>&values.value
        return None
    view = View(source)
    if view.count(item_bytes) != count:
        raise ValueError(f"invalid column: expected {count} values, got {view.count(item_bytes)}")
    values.at, values.step = view.data, item_bytes
    return view


def crc32c(data, uint32_t crc=0):
    """Return the CRC-32C of `data` behind what `crc` is the checksum of."""
    cdef View view = View(data)
    if view.size < LONG_BYTES:
        return crc32c_extend(crc, view.data, view.size)
    with nogil:
        crc = crc32c_extend(crc, view.data, view.size)
    return crc


def crc32c_portable(data):
    """Return the CRC-32C of `data` without the instruction of the processor. For tests."""
    cdef View view = View(data)
    return crc32c_of_portable(view.data, view.size)


cdef inline uint32_t crc_of_entry(Entry *entry, uint32_t salt_crc, uint32_t ordinal) noexcept nogil:
    return crc32c_extend_entry(
        salt_crc, ordinal, entry.place, <uint64_t>entry.timestamp_us, entry.marks, <uint32_t>entry.crcs
    )


cdef uint32_t last_ordinal_fits(Py_ssize_t count, int64_t ordinal) except? 0xFFFFFFFF:
    if not 0 <= ordinal <= <int64_t>U32_MAX + 1 - count:
        raise OverflowError(f"{count} entries from ordinal {ordinal} on")
    return <uint32_t>ordinal


cdef enum:
    # The C library reuses smaller ones without new pages; larger ones are rare.
    LEAST_BLOCK = 16 * 1024
    MOST_BLOCK = 16 * 1024 * 1024
    BLOCKS_BYTES = 256 * 1024 * 1024  # a tail of 64 MiB, unsynced records, and records just flushed
    LOOKS = 4


cdef class Blocks:
    """Pool of the memory of batches: bytes objects without another reference are reused, oldest first.

    The C library would return their pages to the system, and the first write to a new page costs more than copying a
    batch into it."""

    cdef dict by_room  # blocks by size, oldest first, used and unused
    cdef Py_ssize_t size_bytes  # of all blocks

    def __cinit__(self):
        cdef Py_ssize_t room = LEAST_BLOCK
        self.by_room = {}
        # All at once: a deque made later could start the garbage collector, and code of others, in a call of `of_size`.
        while room <= MOST_BLOCK:
            self.by_room[room] = deque()
            room = room_for(room + 1)

    cdef bytes of_size(self, Py_ssize_t size):
        """Return uninitialised bytes, which the caller fills before it shares them."""
        if not LEAST_BLOCK <= size <= MOST_BLOCK:
            return PyBytes_FromStringAndSize(NULL, size)
        cdef Py_ssize_t room = room_for(size)
        blocks = self.by_room[room]
        cdef bytes block = self.spare(blocks, room)
        if block is None:
            if self.size_bytes + room > BLOCKS_BYTES:
                self.drop_spare()
                if self.size_bytes + room > BLOCKS_BYTES:
                    return PyBytes_FromStringAndSize(NULL, size)
            block = PyBytes_FromStringAndSize(NULL, room)
        reset_block(block, size)
        blocks.append(block)
        self.size_bytes += room
        return block

    cdef bytes spare(self, blocks, Py_ssize_t room):
        """Remove and return an unused block, or None.

        The oldest becomes unused first. Used blocks older than it are held for long: they leave the pool."""
        cdef Py_ssize_t place
        cdef bytes block
        for place in range(min(LOOKS, <Py_ssize_t>len(blocks))):
            block = blocks[place]
            if Py_REFCNT(block) == 2:  # the references of `blocks` and `block`
                for _ in range(place + 1):
                    blocks.popleft()
                self.size_bytes -= (place + 1) * room
                return block
        return None

    cdef Py_ssize_t drop_spare(self):
        cdef Py_ssize_t before = self.size_bytes
        for room, blocks in self.by_room.items():
            while self.spare(blocks, room) is not None:
                pass
        return before - self.size_bytes


cdef Py_ssize_t room_for(Py_ssize_t size) noexcept:
    """Return `size` rounded up by at most a quarter, so that batches of similar sizes share blocks."""
    cdef Py_ssize_t step = LEAST_BLOCK // 4
    while size > 8 * step:
        step *= 2
    return (size + step - 1) // step * step


cdef Blocks batches = Blocks()


def drop_spare():
    return batches.drop_spare()


def gathered(payloads not None, Py_ssize_t apart_bytes):
    # A list is not copied: nothing here releases the GIL or runs Python code, so no other code can change it.
    if not isinstance(payloads, (list, tuple)):
        raise TypeError(f"invalid payloads: expected a list or a tuple, got {type(payloads).__name__}")
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(payloads)
    cdef PyObject **items = PySequence_Fast_ITEMS(payloads)
    cdef bytes lengths = PyBytes_FromStringAndSize(NULL, count * 4)
    cdef uint8_t *length_at = <uint8_t *>PyBytes_AS_STRING(lengths)
    cdef uint64_t total = 0
    cdef Py_ssize_t size, number
    cdef uint32_t length
    for number in range(count):
        if number + AHEAD < count:
            prefetch(items[number + AHEAD])
        size = size_of(checked_piece(items[number]))
        if <uint64_t>size > U32_MAX:
            raise OverflowError(f"a payload of {size} bytes")
        length = <uint32_t>size
        memcpy(length_at + 4 * number, &length, 4)
        total += length
    if count < 2 or total >= <uint64_t>(apart_bytes if apart_bytes > 0 else 0) * <uint64_t>count:
        return tuple(payloads), lengths, total, b""
    cdef bytes joined = batches.of_size(<Py_ssize_t>total)
    cdef char *at = PyBytes_AS_STRING(joined)
    cdef bytes crcs = PyBytes_FromStringAndSize(NULL, count * 4)
    cdef uint8_t *crc_at = <uint8_t *>PyBytes_AS_STRING(crcs)
    cdef uint32_t crc
    for number in range(count):
        if number + AHEAD < count:
            prefetch(bytes_in(items[number + AHEAD]))
            prefetch(bytes_in(items[number + AHEAD]) + 64)
            prefetch(at + AHEAD_BYTES)
            prefetch(at + AHEAD_BYTES + 64)
        size = size_of(items[number])
        memcpy(at, bytes_in(items[number]), size)
        crc = crc32c_of(<const uint8_t *>bytes_in(items[number]), size)
        memcpy(crc_at + 4 * number, &crc, 4)
        at += size
    return piece_alone(joined), lengths, total, crcs


def pwritev(int fd, tuple pieces not None, int64_t position):
    cdef Py_ssize_t count = PyTuple_GET_SIZE(pieces)
    cdef PyObject **items = &(<PyTupleObject *>pieces).ob_item[0]
    cdef Py_ssize_t number
    cdef ssize_t done
    if count > IOV_MOST:
        raise ValueError(f"{count} pieces for one system call")
    for number in range(count):
        piece_of(pieces, number)
    while True:
        with nogil:
            done = pieces_written(fd, items, count, position)
        if done >= 0:
            return done
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()


cdef class Flush:
    cdef flush _flush

    def __init__(self, int one, int other=-1, int wake_fd=-1):
        if self._flush.count:
            raise RuntimeError("a flush begins once")
        self._flush.fds = [one, other]
        self._flush.count = 1 if other < 0 else 2
        self._flush.left, self._flush.wake_fd = self._flush.count, wake_fd
        if flush_begin(&self._flush) != 0:
            self._flush.left = 0
            raise RuntimeError("no thread can be started")

    def __dealloc__(self):
        self.ended()

    @property
    def has_ended(self):
        return flush_has_ended(&self._flush, False)

    def wait(self):
        self.ended()
        return self._flush.error, self._flush.error_fd

    cdef inline void ended(self) noexcept:
        with nogil:
            flush_has_ended(&self._flush, True)


def forked():
    """Forget the threads of the parent in a forked child, which does not have them."""
    flush_forked()


register_at_fork(after_in_child=forked)


cdef inline PyObject *piece_of(tuple pieces, Py_ssize_t number) except NULL:
    """Return a borrowed reference to a piece. Raises TypeError when it is not bytes."""
    return checked_piece(PyTuple_GET_ITEM(pieces, number))


cdef inline PyObject *checked_piece(PyObject *piece) except NULL:
    if not PyBytes_Check(<object>piece):
        raise TypeError(f"a payload is {type(<object>piece).__name__}, not bytes")
    return piece


cdef struct Slot:
    PyObject *name  # owned reference; NULL in an empty slot
    uint32_t tag  # the upper half of the hash
    uint32_t number


cdef class NumberedNames:
    """Hash table with linear probing, at most half full."""

    cdef Slot *slots
    cdef Py_ssize_t size  # a power of two
    cdef Py_ssize_t count

    def __cinit__(self):
        self.size = 16
        self.slots = <Slot *>PyMem_Calloc(self.size, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self.slots != NULL:
            for at in range(self.size):
                Py_XDECREF(self.slots[at].name)
            PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    def add(self, str name not None, number):
        if not 0 <= number <= U32_MAX:
            raise OverflowError(f"{number} does not fit into 4 bytes")
        if 2 * (self.count + 1) > self.size:
            self.grow()
        cdef Py_hash_t hashed = PyObject_Hash(name)
        cdef Slot *slot = self.slot_of(<PyObject *>name, hashed)
        if slot.name == NULL:
            Py_INCREF(name)
            slot.name = <PyObject *>name
            slot.tag = tag_of(hashed)
            slot.number = number
            self.count += 1

    def find(self, str name not None):
        cdef int64_t number = self.number_of(name)
        return None if number < 0 else number

    cdef int64_t number_of(self, str name) except? -1:
        cdef Slot *slot = self.slot_of(<PyObject *>name, PyObject_Hash(name))
        return -1 if slot.name == NULL else <int64_t>slot.number

    def find_all(self, tuple names not None):
        cdef Py_ssize_t count = PyTuple_GET_SIZE(names)
        cdef PyObject **items = &(<PyTupleObject *>names).ob_item[0]
        cdef bytes numbers = PyBytes_FromStringAndSize(NULL, count * 4)
        cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(numbers)
        cdef Py_hash_t hashes[ROUND]
        cdef Py_ssize_t first, place, last
        cdef Slot *slot
        # Names and slots lie scattered in memory: those of a round are prefetched together.
        for first in range(0, count, ROUND):
            last = min(count, first + ROUND)
            for place in range(first, min(count, last + ROUND)):
                prefetch(items[place])
            for place in range(first, last):
                if not PyUnicode_CheckExact(<object>items[place]):
                    return None
                hashes[place - first] = PyObject_Hash(<object>items[place])
                prefetch(&self.slots[hashes[place - first] & (self.size - 1)])
            for place in range(first, last):
                slot = self.slot_of(items[place], hashes[place - first])
                if slot.name == NULL:
                    return None
                memcpy(at + 4 * place, &slot.number, 4)
        return numbers

    cdef Slot *slot_of(self, PyObject *name, Py_hash_t hashed) noexcept:
        """Return the slot of a name, or the empty one where it belongs."""
        cdef Py_ssize_t at = hashed & (self.size - 1)
        cdef Slot *slot = &self.slots[at]
        while slot.name != NULL:
            if slot.name == name or (
                slot.tag == tag_of(hashed) and PyUnicode_Compare(<object>slot.name, <object>name) == 0
            ):
                break
            at = (at + 1) & (self.size - 1)
            slot = &self.slots[at]
        return slot

    cdef int grow(self) except -1:
        cdef Slot *old = self.slots
        cdef Py_ssize_t old_size = self.size, at
        cdef Slot *wider = <Slot *>PyMem_Calloc(2 * old_size, sizeof(Slot))
        if wider == NULL:
            raise MemoryError
        self.slots, self.size = wider, 2 * old_size
        for at in range(old_size):
            if old[at].name != NULL:
                self.slot_of(old[at].name, PyObject_Hash(<object>old[at].name))[0] = old[at]
        PyMem_Free(old)
        return 0


cdef inline uint32_t tag_of(Py_hash_t hashed) noexcept nogil:
    return <uint32_t>(<uint64_t>hashed >> 32)


cdef const char *utf8_of(name, Py_ssize_t *size) except NULL:
    """Return the UTF-8 of a name, which the name keeps; that of None is empty."""
    if name is None:
        size[0] = 0
        return b""
    cdef const char *text = PyUnicode_AsUTF8AndSize(name, size)
    if size[0] > <Py_ssize_t>U16_MAX:
        raise OverflowError(f"a name of {size[0]} bytes")
    return text


def encoded_names(list names not None, int64_t first_id, uint32_t salt_crc):
    cdef Py_ssize_t size, total = 0
    for name in names:
        utf8_of(name, &size)
        total += NAME_HEADER_BYTES + size
    if not 0 <= first_id <= <int64_t>U32_MAX + 1 - len(names):
        raise OverflowError(f"{len(names)} names from id {first_id} on")
    cdef bytes result = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(result)
    cdef uint8_t proven[NAME_HEADER_BYTES]  # id and length
    cdef uint32_t number = <uint32_t>first_id, crc
    cdef const char *text
    for name in names:
        text = utf8_of(name, &size)
        memcpy(proven, &number, 4)
        memcpy(proven + 4, &size, 2)  # little-endian, as the file is
        crc = crc32c_extend(crc32c_extend(salt_crc, proven, NAME_HEADER_BYTES), <const uint8_t *>text, size)
        memcpy(at, &crc, 4)
        memcpy(at + 4, &size, 2)
        memcpy(at + NAME_HEADER_BYTES, text, size)
        at += NAME_HEADER_BYTES + size
        number += 1
    return result


cdef struct Target:  # files to which records and their entries are written
    int segment_fd
    int index_fd
    int64_t index_position
    bint whole  # everything was written


def fill_entries(
    tuple pieces not None, bytes lengths not None, topic_ids, header_lengths, flags, *, int64_t position,
    int64_t timestamp_us, int64_t ordinal, uint32_t salt_crc, bytes data_crcs not None=b""
):
    return filled(
        pieces, lengths, topic_ids, header_lengths, flags, position, timestamp_us, ordinal, salt_crc, data_crcs, NULL
    )


cdef bytes filled(
    tuple pieces, bytes lengths, topic_ids, header_lengths, flags, int64_t position, int64_t timestamp_us,
    int64_t ordinal, uint32_t salt_crc, bytes data_crcs, Target *target
):
    """Return the entries, and write them and their records when there is a target: the two system calls of an append.

    Both happen in one section without the GIL, because taking it back is the expensive part. Unless the target is
    whole, either file may have a part. Records in more than IOV_MOST pieces are not written."""
    cdef Py_ssize_t count = count_of(PyBytes_GET_SIZE(lengths), 4), crc_count = count_of(PyBytes_GET_SIZE(data_crcs), 4)
    if crc_count and crc_count != count:
        raise ValueError(f"invalid checksums: expected {count}, got {crc_count}")
    cdef const uint8_t *length_at = <const uint8_t *>PyBytes_AS_STRING(lengths)
    cdef const uint8_t *crcs = <const uint8_t *>PyBytes_AS_STRING(data_crcs) if crc_count else NULL
    cdef Values topics, headers, flag_values
    cdef View topic_view = values_of(topic_ids, 4, count, &topics)
    cdef View header_view = values_of(header_lengths, 2, count, &headers)
    cdef View flag_view = values_of(flags, 2, count, &flag_values)
    cdef uint32_t first = last_ordinal_fits(count, ordinal)
    cdef uint64_t total = sum_of(length_at, count)
    cdef uint64_t data_bytes = 0
    cdef Py_ssize_t number, piece_count = PyTuple_GET_SIZE(pieces)
    for number in range(piece_count):
        data_bytes += <uint64_t>PyBytes_GET_SIZE(<object>piece_of(pieces, number))
    if total != data_bytes:
        raise ValueError(f"invalid lengths: expected a sum of {data_bytes} bytes, got {total}")
    if not 0 <= position <= <int64_t>(U32_MAX - total):
        raise OverflowError(f"{total} bytes at position {position}")
    cdef uint32_t start = <uint32_t>position
    cdef bytes result = batches.of_size(count * ENTRY_BYTES)
    cdef uint8_t *entries = <uint8_t *>PyBytes_AS_STRING(result)
    # A tuple of bytes is immutable, and `pieces` holds a reference to it.
    cdef PyObject **items = &(<PyTupleObject *>pieces).ob_item[0]
    cdef int64_t missing
    if total + count * ENTRY_BYTES < <uint64_t>(LONG_BYTES if target == NULL else LONG_WRITE_BYTES):
        missing = fill(
            entries, count, items, length_at, &topics, &headers, &flag_values, crcs, start, timestamp_us, first,
            salt_crc,
        )
        if target != NULL:
            target.whole = missing == 0 and written(target, items, piece_count, start, total, entries, count)
    else:
        with nogil:
            missing = fill(
                entries, count, items, length_at, &topics, &headers, &flag_values, crcs, start, timestamp_us, first,
                salt_crc,
            )
            if target != NULL:
                target.whole = missing == 0 and written(target, items, piece_count, start, total, entries, count)
    if missing:
        raise ValueError(f"a record has {missing} bytes less in its piece than its length says")
    return result


cdef bint written(
    const Target *target, PyObject **pieces, Py_ssize_t piece_count, int64_t position, Py_ssize_t size,
    const uint8_t *entries, Py_ssize_t count
) noexcept nogil:
    """Write the records, then their entries. Returns False when not everything was written."""
    cdef ssize_t done
    if piece_count == 1:
        done = system_pwrite(target.segment_fd, bytes_in(pieces[0]), size, position)
    else:
        done = pieces_written(target.segment_fd, pieces, piece_count, position)
    if done != size:
        return False
    size = count * ENTRY_BYTES
    return system_pwrite(target.index_fd, entries, size, target.index_position) == size


cdef int write_whole(Target *target, tuple pieces, int64_t position, Py_ssize_t size, bytes entries) except -1:
    """Write records and entries that are there already, as `filled` does."""
    cdef PyObject **items = &(<PyTupleObject *>pieces).ob_item[0]
    cdef Py_ssize_t number, piece_count = PyTuple_GET_SIZE(pieces), entry_bytes = PyBytes_GET_SIZE(entries)
    cdef const uint8_t *made = <const uint8_t *>PyBytes_AS_STRING(entries)
    for number in range(piece_count):
        piece_of(pieces, number)
    if size + entry_bytes < LONG_WRITE_BYTES:
        target.whole = written(target, items, piece_count, position, size, made, entry_bytes // ENTRY_BYTES)
    else:
        with nogil:
            target.whole = written(target, items, piece_count, position, size, made, entry_bytes // ENTRY_BYTES)
    return 0


cdef ssize_t pieces_written(int fd, PyObject **pieces, Py_ssize_t count, int64_t position) noexcept nogil:
    """Return how many bytes one system call has written; -1 on an error or with too many pieces for one call."""
    cdef iovec vectors[IOV_MOST]
    cdef Py_ssize_t number
    if count > IOV_MOST:
        return -1
    for number in range(count):
        vectors[number].iov_base = bytes_in(pieces[number])
        vectors[number].iov_len = size_of(pieces[number])
    return system_pwritev(fd, vectors, <int>count, position)


cdef uint64_t sum_of(const uint8_t *lengths, Py_ssize_t count) noexcept nogil:
    cdef uint64_t total = 0
    cdef uint32_t length
    cdef Py_ssize_t number
    for number in range(count):
        memcpy(&length, lengths + 4 * number, 4)
        total += length
    return total


cdef int64_t fill(
    uint8_t *entries, Py_ssize_t count, PyObject **pieces, const uint8_t *lengths, const Values *topics,
    const Values *headers, const Values *flags, const uint8_t *data_crcs, uint32_t position, int64_t timestamp_us, uint32_t ordinal, uint32_t salt_crc
) noexcept nogil:
    """Return 0, or by how many bytes a record exceeds its piece.

    The caller has checked that lengths and pieces have the same sum, so there is a piece for each record."""
    # Each field is stored from its register: an entry assembled in memory would be read back wider than it was written,
    # which defeats store forwarding.
    cdef Py_ssize_t number
    cdef uint32_t length, topic, crc
    cdef uint16_t header_length, flag
    cdef uint64_t place, marks = 0, crcs
    cdef const uint8_t *data = NULL
    cdef uint64_t left = 0
    cdef bint differ = topics.step or headers.step or flags.step
    for number in range(count):
        memcpy(&length, lengths + 4 * number, 4)
        if differ or number == 0:
            memcpy(&topic, topics.at + number * topics.step, 4)
            memcpy(&header_length, headers.at + number * headers.step, 2)
            memcpy(&flag, flags.at + number * flags.step, 2)
            marks = topic | <uint64_t>header_length << 32 | <uint64_t>flag << 48
        while left == 0 and length:
            data = <const uint8_t *>bytes_in(pieces[0])
            left = <uint64_t>size_of(pieces[0])
            pieces += 1
        if length > left:
            return <int64_t>(length - left)
        if data_crcs == NULL:
            crc = crc32c_of(data, length)
        else:
            memcpy(&crc, data_crcs + 4 * number, 4)
        place = position | <uint64_t>length << 32
        crcs = crc | <uint64_t>crc32c_extend_entry(
            salt_crc, ordinal + <uint32_t>number, place, <uint64_t>timestamp_us, marks, crc
        ) << 32
        memcpy(entries, &place, 8)
        memcpy(entries + 8, &timestamp_us, 8)
        memcpy(entries + 16, &marks, 8)
        memcpy(entries + 24, &crcs, 8)
        entries += ENTRY_BYTES
        data += length
        left -= length
        position += length
    return 0


def entry_crcs(entries, uint32_t salt_crc, first_ordinal):
    cdef View view = View(entries)
    cdef Py_ssize_t count = view.count(ENTRY_BYTES)
    cdef uint32_t first = last_ordinal_fits(count, first_ordinal)
    cdef bytes result = PyBytes_FromStringAndSize(NULL, count * 4)
    cdef uint8_t *crcs = <uint8_t *>PyBytes_AS_STRING(result)
    if view.size < LONG_BYTES:
        fill_crcs(crcs, view.data, count, salt_crc, first)
    else:
        with nogil:
            fill_crcs(crcs, view.data, count, salt_crc, first)
    return result


cdef void fill_crcs(
    uint8_t *crcs, const uint8_t *entries, Py_ssize_t count, uint32_t salt_crc, uint32_t ordinal
) noexcept nogil:
    cdef Entry entry
    cdef Py_ssize_t number
    cdef uint32_t crc
    for number in range(count):
        memcpy(&entry, entries + number * ENTRY_BYTES, ENTRY_BYTES)
        crc = crc_of_entry(&entry, salt_crc, ordinal + <uint32_t>number)
        memcpy(crcs + 4 * number, &crc, 4)


def valid_count(entries, uint32_t salt_crc, first_ordinal):
    cdef View view = View(entries)
    cdef Py_ssize_t count = view.count(ENTRY_BYTES)
    cdef uint32_t first = last_ordinal_fits(count, first_ordinal)
    if view.size < LONG_BYTES:
        return first_invalid(view.data, count, salt_crc, first)
    with nogil:
        count = first_invalid(view.data, count, salt_crc, first)
    return count


cdef Py_ssize_t first_invalid(
    const uint8_t *entries, Py_ssize_t count, uint32_t salt_crc, uint32_t ordinal
) noexcept nogil:
    cdef Entry entry
    cdef Py_ssize_t number
    for number in range(count):
        memcpy(&entry, entries + number * ENTRY_BYTES, ENTRY_BYTES)
        if entry.timestamp_us <= 0:
            return number
        if entry.crcs >> 32 != crc_of_entry(&entry, salt_crc, ordinal + <uint32_t>number):
            return number
    return count


def proven_count(entries, data, uint32_t position):
    cdef View entry_view = View(entries)
    cdef View data_view = View(data)
    cdef Py_ssize_t count = entry_view.count(ENTRY_BYTES)
    if entry_view.size + data_view.size < LONG_BYTES:
        return first_unproven(entry_view.data, count, data_view.data, data_view.size, position)
    with nogil:
        count = first_unproven(entry_view.data, count, data_view.data, data_view.size, position)
    return count


cdef Py_ssize_t first_unproven(
    const uint8_t *entries, Py_ssize_t count, const uint8_t *data, Py_ssize_t size, uint32_t position
) noexcept nogil:
    cdef Entry entry
    cdef Py_ssize_t number
    cdef int64_t start, length
    for number in range(count):
        memcpy(&entry, entries + number * ENTRY_BYTES, ENTRY_BYTES)
        start = <int64_t>(entry.place & U32_MAX) - position
        length = <int64_t>(entry.place >> 32)
        if start < 0 or start > size or length > size - start:
            return number
        if crc32c_of(data + start, length) != <uint32_t>entry.crcs:
            return number
    return count


def shipped_flags(bytes entries not None, bytes data not None, int64_t topic_count):
    cdef Py_ssize_t count = count_of(PyBytes_GET_SIZE(entries), ENTRY_BYTES), size = PyBytes_GET_SIZE(data)
    cdef const uint8_t *first = <const uint8_t *>PyBytes_AS_STRING(entries)
    cdef const uint8_t *bytes_of_records = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t flags
    if count * ENTRY_BYTES + size < LONG_BYTES:
        flags = all_flags(first, count, bytes_of_records, size, topic_count)
    else:
        with nogil:
            flags = all_flags(first, count, bytes_of_records, size, topic_count)
    if flags < 0:
        raise ValueError(f"invalid records: {SHIPPED_FAULTS[-flags - 1]}")
    return flags


cdef int64_t all_flags(
    const uint8_t *entries, Py_ssize_t count, const uint8_t *data, int64_t size, int64_t topic_count
) noexcept nogil:
    """Return the flags of all records together; -1 minus the number of a fault."""
    cdef Entry entry
    cdef Py_ssize_t number
    cdef int64_t length, last_us = 1, flags = 0
    cdef uint16_t flag
    cdef bint has_topic
    for number in range(count):
        memcpy(&entry, entries + number * ENTRY_BYTES, ENTRY_BYTES)
        length, flag = <int64_t>(entry.place >> 32), <uint16_t>(entry.marks >> 48)
        has_topic = <uint32_t>entry.marks != U32_MAX  # NO_TOPIC
        if length > size or crc32c_of(data, length) != <uint32_t>entry.crcs:
            return -1
        if entry.timestamp_us < last_us:
            return -2
        if has_topic and <int64_t>(entry.marks & U32_MAX) >= topic_count:
            return -3
        if <int64_t>(entry.marks >> 32 & U16_MAX) > length:
            return -4
        if flag & REMOVED and (length or has_topic):
            return -5
        data += length
        size -= length
        last_us = entry.timestamp_us
        flags |= flag
    return -1 if size else flags


def placed_entries(bytes entries not None, *, int64_t position, int64_t ordinal, uint32_t salt_crc):
    return placed(entries, position, ordinal, salt_crc)


cdef bytes placed(bytes entries, int64_t position, int64_t ordinal, uint32_t salt_crc):
    cdef Py_ssize_t number, count = count_of(PyBytes_GET_SIZE(entries), ENTRY_BYTES)
    cdef uint32_t first = last_ordinal_fits(count, ordinal)
    cdef bytes result = batches.of_size(count * ENTRY_BYTES)
    cdef const uint8_t *source = <const uint8_t *>PyBytes_AS_STRING(entries)
    cdef uint8_t *target = <uint8_t *>PyBytes_AS_STRING(result)
    cdef Entry entry
    cdef int64_t end = position
    for number in range(count):
        memcpy(&entry, source + number * ENTRY_BYTES, ENTRY_BYTES)
        end += <int64_t>(entry.place >> 32)
        if not 0 <= position <= end <= <int64_t>U32_MAX:
            raise OverflowError(f"{end - position} bytes at position {position}")
        entry.place = <uint64_t>position | entry.place >> 32 << 32
        entry.crcs = <uint32_t>entry.crcs | <uint64_t>crc_of_entry(&entry, salt_crc, first + <uint32_t>number) << 32
        memcpy(target + number * ENTRY_BYTES, &entry, ENTRY_BYTES)
        position = end
    return result


def fitting(index, Py_ssize_t place, Py_ssize_t count, int64_t max_bytes):
    cdef View view = View(index)
    if count < 1 or place < 0 or place > view.size or count > (view.size - place) // ENTRY_BYTES:
        raise ValueError(f"{count} entries at {place} of {view.size} bytes")
    cdef const uint8_t *entries = view.data + place
    cdef uint32_t start
    memcpy(&start, entries, 4)
    # The steps of `bisect`: damaged entries may be out of order, and both kernels must return the same for them.
    cdef Py_ssize_t low = 1, high = count, middle
    while low < high:
        middle = (low + high) // 2
        if end_of(entries, middle) - start > max_bytes:
            high = middle
        else:
            low = middle + 1
    cdef int64_t size_bytes = end_of(entries, low - 1) - start
    return low, start, size_bytes if size_bytes > 0 else 0


cdef inline int64_t end_of(const uint8_t *entries, Py_ssize_t number) noexcept nogil:
    cdef uint32_t position, length
    memcpy(&position, entries + number * ENTRY_BYTES, 4)
    memcpy(&length, entries + number * ENTRY_BYTES + 4, 4)
    return <int64_t>position + <int64_t>length


cdef enum:
    BUCKETS = 29  # DURATION_BUCKETS of the twin


cdef class DurationCounts:
    """See the twin in `timestone.kernel.pure`."""

    cdef int64_t buckets[BUCKETS]
    cdef readonly int64_t sum_ns

    def observe(self, int64_t duration_ns, int64_t count=1):
        self.note(duration_ns, count)

    cdef void note(self, int64_t duration_ns, int64_t count) noexcept:
        cdef uint64_t left = <uint64_t>(duration_ns - 1) // 1000 if duration_ns > 0 else 0
        cdef int bits = 0
        while left and bits < BUCKETS - 1:
            left >>= 1
            bits += 1
        self.buckets[bits] += count
        self.sum_ns += duration_ns * count

    def add(self, DurationCounts other not None):
        cdef int bits
        for bits in range(BUCKETS):
            self.buckets[bits] += other.buckets[bits]
        self.sum_ns += other.sum_ns

    @property
    def counts(self):
        return [self.buckets[bits] for bits in range(BUCKETS)]


cdef class Lock:
    """See the Python version in `timestone.kernel.pure`."""

    cdef PyThread_type_lock lock
    cdef bint held

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no memory for a lock")

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef int take(self) except -1:
        if not self.try_take():
            self.wait()
            self.held = True
        return 0

    cdef bint try_take(self):
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            return False
        self.held = True
        return True

    cdef int wait(self) except -1:
        cdef PyLockStatus status = PY_LOCK_INTR
        while status == PY_LOCK_INTR:
            with nogil:
                status = PyThread_acquire_lock_timed(self.lock, -1, 1)
            if status == PY_LOCK_INTR:
                PyErr_CheckSignals()
        return 0

    cdef int give(self) except -1:
        if not self.held:
            raise RuntimeError("release unlocked lock")
        self.held = False
        PyThread_release_lock(self.lock)
        return 0

    def acquire(self, bint blocking=True):
        return self.try_take() if not blocking else self.take() == 0

    def release(self):
        self.give()

    def locked(self):
        return self.held

    def __enter__(self):
        self.take()
        return True

    def __exit__(self, *error):
        self.give()


cdef inline tuple piece_alone(bytes piece):
    pieces = (piece,)
    PyObject_GC_UnTrack(<PyObject *>pieces)  # as a collection would do when it looks at them
    return pieces


cdef inline void put(object record, Py_ssize_t place, object field):
    Py_INCREF(field)
    PyTuple_SET_ITEM(record, place, field)

@no_gc  # bytes and integers, and one object an append: the collector would look at each of them
@freelist(8)
cdef class StoredPieces:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef readonly tuple pieces
    cdef readonly int64_t size_bytes
    cdef public list _ends

    def __init__(self, tuple pieces not None, int64_t size_bytes):
        self.pieces, self.size_bytes, self._ends = pieces, size_bytes, None


@no_gc
@freelist(8)
cdef class StoredRun:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef readonly int64_t base_offset, end_offset, position
    cdef readonly bytes entries
    cdef readonly StoredPieces stored

    def __init__(
        self, int64_t base_offset, int64_t end_offset, bytes entries not None, StoredPieces stored not None,
        int64_t position,
    ):
        self.base_offset, self.end_offset, self.position = base_offset, end_offset, position
        self.entries, self.stored = entries, stored

    @property
    def cost_bytes(self):
        return self.cost()

    cdef int64_t cost(self):
        cdef Py_ssize_t pieces_bytes = PIECE_COST_BYTES * PyTuple_GET_SIZE(self.stored.pieces)
        return PyBytes_GET_SIZE(self.entries) + self.stored.size_bytes + pieces_bytes + RUN_COST_BYTES


@no_gc  # columns hold bytes, integers and arrays of integers
@freelist(8)
cdef class Columns:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public int64_t count, size_bytes
    cdef public StoredPieces stored
    cdef public bytes lengths, crcs
    cdef public object topic_ids, flags, header_lengths
    cdef public bytes made

    @classmethod
    def single(cls, bytes payload not None, int64_t topic_id, int64_t flags=0, int64_t header_length=0):
        if not (
            0 <= topic_id <= <int64_t>U32_MAX and 0 <= flags <= <int64_t>U16_MAX
            and 0 <= header_length <= <int64_t>U16_MAX and PyBytes_GET_SIZE(payload) <= <int64_t>U32_MAX
        ):
            raise OverflowError(
                f"topic id {topic_id}, flags {flags:#x}, header block of {header_length} or payload of "
                f"{PyBytes_GET_SIZE(payload)} bytes out of range"
            )
        if flags & REMOVED:
            raise ValueError("a record cannot be appended as removed")
        return single_of(cls, cls.stored_type, payload, topic_id, flags, header_length)


cdef Columns single_of(kind, stored_kind, bytes payload, topic_id, flags, header_length):
    cdef Columns one = <Columns?>new_object(kind, ())
    cdef StoredPieces stored = <StoredPieces?>new_object(stored_kind, ())
    cdef uint64_t size_bytes = <uint64_t>PyBytes_GET_SIZE(payload)
    stored.pieces, stored.size_bytes = piece_alone(payload), <int64_t>size_bytes
    one.count, one.size_bytes, one.stored = 1, stored.size_bytes, stored
    one.lengths = PyBytes_FromStringAndSize(<char *>&size_bytes, 4)  # little-endian, as entries are
    one.topic_ids, one.flags, one.header_lengths, one.crcs = topic_id, flags, header_length, b""
    return one


cdef class PreparedSegment:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public int64_t base_offset, count, size_bytes, created_us
    cdef public int64_t _reserved, _ahead, _durable_ceiling
    cdef public int _segment_fd, _index_fd
    cdef public uint32_t _salt_crc
    cdef public bint _is_plain

    def write_prepared(self, Columns write_batch not None, int64_t timestamp_us):
        return self.written(write_batch, timestamp_us)

    cdef object written(self, Columns write_batch, int64_t timestamp_us):
        cdef int64_t count = write_batch.count, size_bytes = write_batch.size_bytes
        cdef Target target
        if write_batch.stored is None:
            raise ValueError("invalid write batch: expected its records, got none")
        target.index_position = INDEX_HEADER_BYTES + self.count * ENTRY_BYTES
        if (
            target.index_position + count * ENTRY_BYTES > self._reserved
            or self.size_bytes + size_bytes > self._ahead
            or self.base_offset + self.count + count > self._durable_ceiling
        ):
            return None
        if not self._is_plain:
            return self._write_with_entries(write_batch, timestamp_us)
        target.segment_fd, target.index_fd = self._segment_fd, self._index_fd
        if write_batch.made is None:
            entries = filled(
                write_batch.stored.pieces, write_batch.lengths, write_batch.topic_ids, write_batch.header_lengths, write_batch.flags,
                self.size_bytes, timestamp_us, self.count, self._salt_crc, write_batch.crcs, &target,
            )
        else:
            entries = placed(write_batch.made, self.size_bytes, self.count, self._salt_crc)
            write_whole(&target, write_batch.stored.pieces, self.size_bytes, size_bytes, entries)
        if target.whole:
            self.count += count
            self.size_bytes += size_bytes
        else:
            self._write_again(write_batch.stored, entries)
        return entries


cdef inline int64_t time_at(bytes entries, Py_ssize_t place):
    cdef int64_t time_us
    memcpy(&time_us, PyBytes_AS_STRING(entries) + place + 8, 8)
    return time_us


cdef class PreparedLog:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public int64_t next_offset, unsynced_bytes, change_count
    cdef public int64_t _last_timestamp_us, _segment_bytes, _segment_entries, _roll_age_us, _record_bytes
    cdef public PreparedSegment _writer
    cdef public object _unsynced_runs, _now_us, _run_type
    cdef public ShownSegments segment_list

    def write_prepared(self, Columns write_batch not None):
        return self.prepared(write_batch)

    cdef object prepared(self, Columns write_batch):
        cdef PreparedSegment writer = self._writer
        if writer is None or writer.count == 0:
            return None
        cdef int64_t read_us = wall_us() if self._now_us is now_us else self._now_us()
        cdef int64_t time_us = max(read_us, self._last_timestamp_us)
        cdef Py_ssize_t made_bytes
        if write_batch.made is not None:
            made_bytes = PyBytes_GET_SIZE(write_batch.made)
            if not made_bytes or time_at(write_batch.made, 0) < self._last_timestamp_us:
                return None
            time_us = time_at(write_batch.made, made_bytes - ENTRY_BYTES)
        cdef int64_t count = write_batch.count, size_bytes = write_batch.size_bytes
        if (
            writer.size_bytes + size_bytes > self._segment_bytes
            or writer.count + count > self._segment_entries
            or read_us - writer.created_us >= self._roll_age_us
        ):
            return None
        cdef int64_t position = writer.size_bytes
        try:
            entries = writer.written(write_batch, time_us)
        except Exception as error:
            return self._half_written(write_batch, error)
        if entries is None:
            return None
        cdef StoredRun run = <StoredRun?>new_object(self._run_type, ())
        run.base_offset, run.end_offset, run.position = self.next_offset, self.next_offset + count, position
        run.entries, run.stored = entries, write_batch.stored
        self.next_offset += count
        self._last_timestamp_us = time_us
        self._unsynced_runs.append(run)
        self.unsynced_bytes += size_bytes + PyBytes_GET_SIZE(entries)
        return run


cdef class Budget:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public int64_t limit_bytes, used_bytes
    cdef public object order
    cdef readonly Lock lock

    def __cinit__(self):
        self.lock = Lock()

    def make_room_locked(self):
        self.make_room()

    cdef int make_room(self) except -1:
        while self.used_bytes > self.limit_bytes and self.order:
            self.used_bytes -= (<PreparedTail?>self.order.popleft()).drop_oldest()
        return 0


cdef uint64_t NO_OFFSET = 1 << 63
cdef StoredRun nothing = StoredRun(0, 0, b"", StoredPieces((b"",), 0), 0)


cdef class PreparedTail:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public list _runs, _ends
    cdef public Py_ssize_t _dropped
    cdef public StoredRun _newest
    cdef public uint64_t first_offset
    cdef public Budget _budget

    def __init__(self, Budget budget not None):
        self._budget, self._runs, self._ends = budget, [], []
        self._newest, self.first_offset = nothing, NO_OFFSET

    cdef int64_t drop_oldest(self) except -1:
        cdef Py_ssize_t at = self._dropped + 1
        cdef int64_t cost_bytes = (<StoredRun>self._runs[at - 1]).cost()
        self._runs[at - 1], self._dropped = nothing, at
        if at < len(self._runs):
            self.first_offset = (<StoredRun>self._runs[at]).base_offset
        else:
            self.first_offset, self._newest = NO_OFFSET, nothing
        if at >= 1024 and at * 2 >= len(self._runs):
            del self._runs[:at], self._ends[:at]
            self._dropped = 0
        return cost_bytes

    def add(self, StoredRun run not None):
        self.keep(run)

    cdef object keep(self, StoredRun run):
        cdef Budget budget = self._budget
        budget.lock.take()
        try:
            if self._dropped == len(self._runs):
                self.first_offset = run.base_offset
            self._runs.append(run)
            self._ends.append(run.end_offset)
            self._newest = run
            budget.order.append(self)
            budget.used_bytes += run.cost()
            if budget.used_bytes > budget.limit_bytes:
                budget.make_room()
        finally:
            budget.lock.give()


def now_us():
    return wall_us()


cdef int64_t wall_us() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return max(1, <int64_t>now.tv_sec * 1_000_000 + now.tv_nsec // 1000)


cdef double seconds_of(now_s) except? -1:
    cdef timespec now
    if now_s is not perf_counter:
        return now_s()
    clock_gettime(CLOCK_MONOTONIC, &now)  # as `time.perf_counter` reads it, without a float
    return <double>now.tv_sec + <double>now.tv_nsec * 1e-9


cdef class AssignedTopics:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public list _names
    cdef public NumberedNames ids
    cdef public Py_ssize_t written_count


cdef class PausedWrites:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public object now_s
    cdef public double slow_s, paused_until_s


cdef class QueuedBytes:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public int64_t queued_bytes


cdef class AwaitedBytes:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public int64_t awaited_bytes


cdef class PreparedEnd:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public PreparedLog active_segment
    cdef public DurationCounts writes
    cdef public int64_t written_bytes, _unchecked_bytes
    cdef public double _check_bytes
    cdef public AssignedTopics topics
    cdef public PausedWrites inline_writes
    cdef readonly Lock lock
    cdef public object closed, failure, _events

    def __cinit__(self):
        self.lock = Lock()

    def renew_lock(self):
        self.lock = Lock()

    cpdef object write_prepared_locked(self, Columns write_batch, bint inline=False, list woken=None):
        cdef PreparedLog log = self.active_segment
        cdef int64_t size_bytes = write_batch.size_bytes, change_count = log.change_count
        if (
            len(self.topics._names) != self.topics.written_count
            or self._unchecked_bytes + size_bytes >= self._check_bytes
            or self.closed is not None
        ):
            return None
        if self.failure is not None:
            raise self.failure.again()
        if write_batch.count == 0:
            return self._events.written_offset
        now_s = self.inline_writes.now_s
        cdef double began_s = seconds_of(now_s), ended_s
        cdef StoredRun run
        try:
            run = log.prepared(write_batch)
            if run is None:
                return None
            events = self._events
            if isinstance(events, Published) and (<Published>events).shows_at_once:
                (<Published>events).show(run, write_batch, log.next_offset, woken)
            else:
                events.published(run, write_batch, log.next_offset, woken)
        except BaseException as error:
            self._judge(error)
            raise
        finally:
            if log.change_count != change_count:
                self._segment_changed()
            ended_s = seconds_of(now_s)
            if inline and ended_s - began_s > self.inline_writes.slow_s:
                self.inline_writes.was_slow(began_s, ended_s)
        self._unchecked_bytes += size_bytes
        self.writes.note(<int64_t>((ended_s - began_s) * 1e9), 1)
        self.written_bytes += size_bytes
        return run.base_offset


cdef class PreparedCommit:
    """See the Python version in `timestone.kernel.prepared`."""

    cdef public PreparedEnd _end
    cdef public QueuedBytes _queue
    cdef public AwaitedBytes delay
    cdef public object _committer, _default_level, direct_level, _batch_type, _stored_type, sync_lock
    cdef public int64_t _queue_bytes, _sync_interval_bytes, _flush_bytes
    cdef public bint is_sync_expected

    def append_single(self, payload, topic, headers, flags, level):
        if (
            type(payload) is not bytes or PyBytes_GET_SIZE(payload) > self._end.active_segment._record_bytes
            or headers or flags or (topic_id := self.known_topic(topic, level)) is None
        ):
            return None
        return self.written(single_of(self._batch_type, self._stored_type, payload, topic_id, 0, 0))

    def append_gathered(self, payloads, topic, level):
        if type(payloads) is not list or not payloads or (topic_id := self.known_topic(topic, level)) is None:
            return None
        cdef Columns batch = <Columns?>new_object(self._batch_type, ())
        cdef StoredPieces stored = <StoredPieces?>new_object(self._stored_type, ())
        try:
            stored.pieces, batch.lengths, stored.size_bytes, batch.crcs = gathered(payloads, APART_BYTES)
        except TypeError:
            return None
        if stored.size_bytes > self._end.active_segment._record_bytes:
            return None
        batch.count, batch.size_bytes, batch.stored = len(<list>payloads), stored.size_bytes, stored
        batch.topic_ids, batch.flags, batch.header_lengths = topic_id, 0, 0
        return self.written(batch)

    cdef object known_topic(self, topic, level):
        """Return the id of a topic if an append at this level needs a write and nothing else; None otherwise."""
        if level is None:
            level = self._default_level
        if (
            self.direct_level is None or self._end.closed is not None or (topic is not None and type(topic) is not str)
            or not (level is self.direct_level or (type(level) is str and <str>level == "written"))
        ):
            return None
        return NO_TOPIC if topic is None else self._end.topics.ids.find(topic)

    def append_written(self, Columns write_batch not None):
        return self.written(write_batch)

    cdef object written(self, Columns write_batch):
        cdef PreparedEnd end = self._end
        if end.active_segment.unsynced_bytes >= self._queue_bytes:
            return None
        cdef Lock lock = end.lock
        lock.take()
        try:
            first = None if self._queue.queued_bytes else end.write_prepared_locked(write_batch, False, None)
        finally:
            lock.give()
        if first is not None:
            self.expect_sync()
        return first

    def append_inline(self, Columns write_batch not None, list woken=None, submission=None):
        return self.inline(write_batch, woken, submission)

    cdef object inline(self, Columns write_batch, list woken, submission):
        cdef PreparedEnd end = self._end
        if not end.lock.try_take():
            return None
        try:
            if (
                self._queue.queued_bytes or self.delay.awaited_bytes > SMALL_FLUSH_BYTES
                or (self._flush_bytes > SMALL_FLUSH_BYTES and self.sync_lock.locked())
                or write_batch.size_bytes + write_batch.count * ENTRY_BYTES > INLINE_BYTES
                or seconds_of(end.inline_writes.now_s) < end.inline_writes.paused_until_s
            ):
                return None
            first = end.write_prepared_locked(write_batch, True, woken)
            if submission is not None and first is not None:
                self._written_locked(submission, first)
        finally:
            end.lock.give()
        if submission is None and first is not None:
            self.expect_sync()
        return first

    cdef int expect_sync(self) except -1:
        if not (self.is_sync_expected and self._end.active_segment.unsynced_bytes < self._sync_interval_bytes):
            self._committer.expect_sync(self)
        return 0


cdef class ShownSegments:
    """See the Python version in `timestone.kernel.published`."""

    cdef public object segments


cdef class ShownSegment:
    """See the Python version in `timestone.kernel.published`."""

    cdef public int64_t base_offset, count


cdef class ParkedWaiters:
    """See the Python version in `timestone.kernel.published`."""

    cdef public Lock lock
    cdef public set parked, _parked_for_all
    cdef public dict _wanting

    cdef list woken_by(self, int64_t first_offset, topic_ids):
        """Same as `Wakeups.published` for records of one topic."""
        if self._parked_for_all or type(topic_ids) is not int:
            return self.published(first_offset, topic_ids)
        cdef list woken = []
        wanting = self._wanting.get(topic_ids)
        for interest in <tuple?>(self._now_wanting(topic_ids) if wanting is None else wanting):
            waiter = interest.waiter
            if waiter in self.parked:
                self.parked.discard(waiter)
                woken.append((waiter, first_offset))
        return woken


cdef class Published:
    """See the Python version in `timestone.kernel.published`."""

    cdef public PreparedTail _tail
    cdef public PreparedEnd _end
    cdef public PreparedCommit _commit
    cdef public ParkedWaiters wakeups
    cdef public PreparedLog _active_segment
    cdef public int64_t _start_offset, _end_offset, _compacted_to
    cdef bint shows_at_once  # no subclass shows records otherwise

    def __cinit__(self, *_, **__):
        self.shows_at_once = type(self).published is Published.published

    @property
    def end_offset(self):
        return self._end_offset

    def append_now(self, Columns write_batch not None, list woken=None):
        cdef PreparedEnd end = self._end
        topic_id = write_batch.topic_ids
        if (
            type(topic_id) is not int or not (topic_id < len(end.topics._names) or topic_id == NO_TOPIC)
            or write_batch.size_bytes > end.active_segment._record_bytes
        ):
            write_batch.check(end.active_segment._record_bytes, len(end.topics._names))
        first = self._commit.inline(write_batch, woken, None)
        return None if first is None else range(first, first + write_batch.count)

    def single(self, int64_t offset):
        cdef StoredRun run = self._tail._newest
        cdef Entry entry
        if (
            run.base_offset != offset or run.end_offset != self._end_offset or self._end.closed is not None
            or offset < self._start_offset or offset < self._compacted_to
            or PyBytes_GET_SIZE(run.entries) != ENTRY_BYTES or PyTuple_GET_SIZE(run.stored.pieces) != 1
        ):
            return None
        memcpy(&entry, PyBytes_AS_STRING(run.entries), ENTRY_BYTES)
        return (
            offset, <uint32_t>entry.marks, <uint16_t>(entry.marks >> 48), <uint16_t>(entry.marks >> 32), run.stored.pieces[0]
        )

    def published(self, StoredRun run not None, Columns write_batch not None, int64_t end_offset, list woken=None):
        self.show(run, write_batch, end_offset, woken)

    cdef int show(self, StoredRun run, Columns write_batch, int64_t end_offset, list woken) except -1:
        self._tail.keep(run)
        segments = self._active_segment.segment_list.segments
        cdef ShownSegment growing = segments[len(segments) - 1]
        cdef ParkedWaiters wakeups = self.wakeups
        wakeups.lock.take()
        try:
            self._end_offset = end_offset
            growing.count = end_offset - growing.base_offset
            found = wakeups.woken_by(run.base_offset, write_batch.topic_ids) if wakeups.parked else None
        finally:
            wakeups.lock.give()
        if found:
            if woken is None:
                wakeups.wake(found)
            else:
                woken += found
        return 0


cdef class ReaderCursor:
    """See the Python version in `timestone.kernel.published`."""

    cdef public object log, _filters, _woken
    cdef public int64_t offset
    cdef public bint _closed, _registered

    def park(self):
        if self._closed or not self._registered or self._filters is None or not isinstance(self.log, Published):
            return self._park()
        cdef Published log = self.log
        if log._end.closed is not None:
            return self._park()
        cdef ParkedWaiters wakeups = log.wakeups
        wakeups.lock.take()
        try:
            if self.offset < log._end_offset:
                return False
            if self._woken is not None:
                self._woken.clear()
            wakeups.parked.add(self)
        finally:
            wakeups.lock.give()
        return True


cdef class SegmentRecords:
    """See the Python version in `timestone.kernel.open_records`."""

    cdef readonly int64_t base_offset
    cdef readonly int64_t end_offset
    cdef View index
    cdef uint32_t salt_crc
    cdef object pread
    cdef int fd
    cdef object keeper

    def __cinit__(
        self, int64_t base_offset, int64_t end_offset, index, uint32_t salt_crc, pread, int fd, keeper not None
    ):
        cdef View view = View(index)
        cdef int64_t count = (view.size - INDEX_HEADER_BYTES) // ENTRY_BYTES
        if not 0 <= base_offset <= end_offset or view.size < INDEX_HEADER_BYTES or end_offset - base_offset > count:
            raise ValueError(f"no entries of the offsets {base_offset} to {end_offset} in {view.size} bytes")
        self.base_offset, self.end_offset = base_offset, end_offset
        self.index, self.salt_crc = view, salt_crc
        self.pread, self.fd, self.keeper = pread, fd, keeper

    def close(self):
        self.end_offset = self.base_offset
        self.index = self.keeper = None

    cdef object record(self, int64_t offset, list names):
        """Return the record at an offset of this segment; None when `Segment` has to read it."""
        cdef uint32_t ordinal = <uint32_t>(offset - self.base_offset)
        cdef object keeper = self.keeper  # keeps the files open while the GIL is released
        cdef Entry entry
        memcpy(&entry, self.index.data + INDEX_HEADER_BYTES + <int64_t>ordinal * ENTRY_BYTES, ENTRY_BYTES)
        if first_invalid(<const uint8_t *>&entry, 1, self.salt_crc, ordinal) == 0:
            return None
        cdef uint32_t topic = <uint32_t>entry.marks
        cdef uint16_t flags = <uint16_t>(entry.marks >> 48)
        if <uint16_t>(entry.marks >> 32) or flags & REMOVED:
            return None
        cdef bytes data = self.read(<Py_ssize_t>(entry.place >> 32), <int64_t>(entry.place & U32_MAX))
        if data is None or crc32c_of(<const uint8_t *>bytes_in(<PyObject *>data), PyBytes_GET_SIZE(data)) != (
            <uint32_t>entry.crcs
        ):
            return None
        # Same as `Record(…)` without a tuple of arguments, which is a tenth of a single read.
        found = new_of(Record, 6)
        put(found, 0, offset)
        put(found, 1, entry.timestamp_us)
        put(found, 2, names[topic] if topic < <size_t>len(names) else None)
        put(found, 3, data)
        put(found, 4, ())
        put(found, 5, flags)
        return found

    cdef bytes read(self, Py_ssize_t length, int64_t position):
        """Return `length` bytes, or None when fewer can be read."""
        if length == 0:
            return b""
        if self.pread is not None:
            found = self.pread(self.fd, length, position)
            return found if PyBytes_GET_SIZE(found) == length else None
        cdef bytes data = PyBytes_FromStringAndSize(NULL, length)
        cdef char *at = PyBytes_AS_STRING(data)
        cdef int fd = self.fd
        cdef ssize_t done
        with nogil:
            done = system_pread(fd, at, length, position)
        return data if done == length else None


cdef class OpenRecords:
    """See the Python version in `timestone.kernel.open_records`."""

    cdef list names
    cdef list segments  # by base offset

    def __cinit__(self, list names not None):
        self.names, self.segments = names, []

    def show(self, SegmentRecords records not None):
        cdef SegmentRecords one
        if records.end_offset == records.base_offset:
            return
        kept = [one for one in self.segments if one.end_offset > one.base_offset]
        kept = [one for one in kept if one.base_offset != records.base_offset]
        self.segments = sorted([*kept, records], key=base_of)

    def clear(self):
        self.segments = []

    def record(self, offset):
        cdef int overflow
        cdef int64_t wanted = PyLong_AsLongLongAndOverflow(offset, &overflow)
        cdef list segments = self.segments
        cdef Py_ssize_t low = 0, high = len(segments), middle
        cdef SegmentRecords one
        if overflow:
            return None
        while low < high:
            middle = (low + high) // 2
            if (<SegmentRecords>segments[middle]).base_offset > wanted:
                high = middle
            else:
                low = middle + 1
        if low == 0:
            return None
        one = <SegmentRecords>segments[low - 1]
        return one.record(wanted, self.names) if wanted < one.end_offset else None


def base_of(SegmentRecords records not None):
    return records.base_offset
