# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, freethreading_compatible=False
"""Compiled per-message loops of the front: same names, arguments, results and errors as the Python versions in `codec`.

Contents: bytes from the wire to columns and back. The loops know no session and no log, keep no reference to the bytes
they are given, and trust no length from the wire: every position is checked against the end of the buffer before it is
used. The GIL is released for long work: when a socket has much to read, it is read and its packets are found and copied
without the GIL, while the committer writes the previous batch."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.buffer cimport Py_buffer, PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.errno cimport EAGAIN, EINTR, ENOENT, errno
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset, strerror
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os
from mqtt_front.codec.fields import VARINT_MAX
from mqtt_front.codec.frame import Form, Framed
from mqtt_front.codec.scan import RUN_PACKETS, RUN_TOPICS, PublishRun
from mqtt_front.kernel.publish_fast_path import PublishColumns
from timestone.errors import TimestoneError
from timestone.writing.write_batch import WriteBatch

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize" (const char *data, Py_ssize_t size)
    int resize_bytes "_PyBytes_Resize" (PyObject **data, Py_ssize_t size) except -1
    # The macro without the GIL: it reads an object to which the caller holds a reference.
    char *bytes_in "PyBytes_AS_STRING"(PyObject *data) nogil

cdef extern from "_sockets.h":
    int poll_open() nogil
    void poll_close(int poll) nogil
    int poll_watch(int poll, int fd, uint64_t key) nogil
    int poll_forget(int poll, int fd) nogil
    int poll_ready(int poll, uint64_t *keys, int count) nogil
    Py_ssize_t socket_receive(int fd, void *data, size_t size) nogil
    Py_ssize_t socket_send(int fd, const void *data, size_t size) nogil

cdef extern from *:
    """
    #define prefetch(address) __builtin_prefetch(address)

    static inline uint64_t folded(uint64_t one, uint64_t other) {
        unsigned __int128 product = (unsigned __int128)one * other;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    void prefetch(const void *address) nogil
    uint64_t folded(uint64_t one, uint64_t other) nogil

INTERFACE = 19  # see mqtt_front/kernel/loops.py

cdef enum:
    PACKETS = 32768
    TOPICS = 256
    SLOTS = 1024  # a power of two; at most a quarter of them is used
    ROUND = 32  # topics whose lookups are interleaved
    # Releasing and taking the GIL is worth it for work of ten microseconds and more.
    LONG_BYTES = 65536
    AHEAD_BYTES = 1024  # bytes of the destination to prefetch: reused memory is cold
    SHORTEST = 5  # bytes of the shortest PUBLISH
    PACKET_ID_MAX = 65535
    UNKNOWN = 0xFFFFFFFF  # in place of the id of a topic

assert (RUN_PACKETS, RUN_TOPICS) == (PACKETS, TOPICS)
cdef Py_ssize_t LONGEST = VARINT_MAX

cdef struct Topic:
    const uint8_t *name
    Py_ssize_t size

cdef struct Packet:
    Topic topic
    const uint8_t *payload
    const uint8_t *properties
    uint32_t payload_bytes
    uint32_t properties_bytes
    uint32_t number  # of the topic: its position in the run, or its id in the log
    uint8_t first
    uint8_t packet_id[2]

cdef struct Run:
    Packet *packets
    Py_ssize_t count
    Py_ssize_t topic_count
    Py_ssize_t answer_count
    Py_ssize_t data_bytes
    Py_ssize_t properties_count
    Py_ssize_t position
    uint8_t firsts  # all first bytes, or-ed
    int64_t log  # of the topics that were looked up
    bint unknown  # at least one topic is not in the cache

# Scratch memory of `scan_publishes`. Only one call runs at a time: it holds the GIL, and while the memory is in use it
# creates no object that the garbage collector tracks. Before Python 3.12 a collection can start at such an allocation
# and run finalizers, which can switch threads.
cdef Packet *packets = NULL
cdef Py_ssize_t packet_room = 0
cdef Topic topics[TOPICS]
cdef uint32_t topic_slots[TOPICS]
cdef int16_t slots[SLOTS]  # position in `topics` plus 1; 0 is free; all are free between two scans
cdef object new_tuple = tuple.__new__


cdef inline Py_ssize_t long_length(
    const uint8_t *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t *behind
) noexcept nogil:
    """Decode a variable byte integer of two to four bytes and set `behind` to its end. Returns -1 if invalid."""
    cdef Py_ssize_t value = data[at] & 0x7F
    cdef int shift = 7
    cdef uint8_t byte
    while shift <= 21:
        at += 1
        if at >= end:
            return -1
        byte = data[at]
        value |= <Py_ssize_t>(byte & 0x7F) << shift
        if byte < 0x80:
            behind[0] = at + 1
            return value if byte else -1
        shift += 7
    return -1


# Random, so that clients cannot choose topics that collide.
cdef uint64_t hash_key = int.from_bytes(os.urandom(8), "little")
cdef uint64_t other_key = int.from_bytes(os.urandom(8), "little")


cdef inline uint64_t hash_of(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    cdef uint64_t mixed = other_key ^ <uint64_t>size
    cdef uint64_t words[2]
    while size > 16:
        memcpy(words, name, 16)
        mixed = folded(words[0] ^ hash_key, words[1] ^ mixed)
        name += 16
        size -= 16
    words[0] = words[1] = 0
    memcpy(words, name, size)
    return folded(folded(words[0] ^ hash_key, words[1] ^ mixed) ^ hash_key, other_key)


cdef inline bint same(const Topic *one, const Topic *other) noexcept nogil:
    return one.size == other.size and memcmp(one.name, other.name, one.size) == 0


cdef inline int number_of(const Topic *topic, Py_ssize_t *count) noexcept nogil:
    """Return the position of a topic in `topics`, to which a new one is added; -1 when it is full."""
    cdef uint32_t slot = <uint32_t>hash_of(topic.name, topic.size) & (SLOTS - 1)
    cdef int number
    while slots[slot]:
        number = slots[slot] - 1
        if same(&topics[number], topic):
            return number
        slot = (slot + 1) & (SLOTS - 1)
    if count[0] == TOPICS:
        return -1
    number = <int>count[0]
    topics[number] = topic[0]
    topic_slots[number] = slot
    slots[slot] = <int16_t>(number + 1)
    count[0] += 1
    return number


cdef void *resized(void *memory, Py_ssize_t size) except NULL:
    """Return memory of another size with the same content. Raises MemoryError without a change."""
    cdef void *moved = realloc(memory, size)
    if moved == NULL:
        raise MemoryError()
    return moved


cdef int make_room(Packet **packets, Py_ssize_t *room, Py_ssize_t count) except -1:
    """Allocate room for `count` packets. It is never reduced: receive buffers are of the same size."""
    if count > room[0]:
        packets[0] = <Packet *>resized(packets[0], count * sizeof(Packet))
        room[0] = count
    return 0


cdef inline void scan(
    const uint8_t *data, Py_ssize_t position, Py_ssize_t end, bint with_properties, Py_ssize_t size_limit, bint numbered,
    Run *run,
) noexcept nogil:
    """Find the packets of a run. The caller has allocated room for as many as `end - position` bytes can hold, or for
    PACKETS when topics are numbered."""
    cdef Py_ssize_t body, remaining, stop, at, topic_at, topic_end, length
    cdef Py_ssize_t limit = end - 4  # the shortest PUBLISH has five bytes, so one comparison guards the first lookups
    cdef uint8_t first
    cdef Packet *packet
    cdef int number = -1
    while position < limit and not (numbered and run.count == PACKETS):
        first = data[position]
        if first >> 4 != 3 or (first & 6) == 6 or (first & 14) == 8:
            break
        remaining = data[position + 1]
        body = position + 2
        if remaining > 127:
            remaining = long_length(data, position + 1, end, &body)
        if remaining < 3 or remaining > end - body:
            break
        stop = body + remaining
        if stop - position > size_limit:
            break
        topic_at = body + 2
        topic_end = topic_at + (<Py_ssize_t>data[body] << 8 | data[body + 1])
        at = topic_end + 2 if first & 6 else topic_end
        length = 0
        if with_properties:
            if at >= stop:
                break
            length = data[at]
            at += 1
            if length > 127:
                length = long_length(data, at - 1, stop, &at)
            if length < 0 or length > stop - at:
                break
            at += length
        elif at > stop:
            break
        packet = &run.packets[run.count]
        if first & 6:
            if data[topic_end] == 0 and data[topic_end + 1] == 0:
                break  # packet id 0
            packet.packet_id[0] = data[topic_end]
            packet.packet_id[1] = data[topic_end + 1]
        packet.topic.name = data + topic_at
        packet.topic.size = topic_end - topic_at
        # A device usually publishes to the topic of its previous packet.
        if numbered and (number < 0 or not same(&topics[number], &packet.topic)):
            number = number_of(&packet.topic, &run.topic_count)
            if number < 0:
                break
        packet.first = first
        packet.number = <uint32_t>number
        packet.properties = data + at - length
        packet.properties_bytes = <uint32_t>length
        packet.payload = data + at
        packet.payload_bytes = <uint32_t>(stop - at)
        run.count += 1
        run.firsts |= first
        run.answer_count += (first & 6) != 0
        run.properties_count += length != 0
        run.data_bytes += stop - at
        position = stop
    run.position = position
    for number in range(<int>run.topic_count):
        slots[topic_slots[number]] = 0


def scan_publishes(bytes data not None, Py_ssize_t position, Py_ssize_t end, int level, size_limit):
    if not 0 <= position <= end <= len(data):
        raise ValueError(f"bytes {position} to {end} of {len(data)}")
    cdef Run run
    cdef Py_ssize_t number, limit
    cdef list names = []
    cdef dict properties = {}
    memset(&run, 0, sizeof(run))
    make_room(&packets, &packet_room, min((end - position) // SHORTEST, PACKETS))
    run.packets = packets
    limit = end if size_limit > end else max(size_limit, 0)
    scan(<const uint8_t *>PyBytes_AS_STRING(data), position, end, level == 5, limit, True, &run)

    cdef bytes first_bytes = PyBytes_FromStringAndSize(NULL, run.count)
    cdef bytes numbers = PyBytes_FromStringAndSize(NULL, 2 * run.count)
    cdef bytes payloads = PyBytes_FromStringAndSize(NULL, run.data_bytes)
    cdef bytes lengths = PyBytes_FromStringAndSize(NULL, 4 * run.count)
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, 4 * run.answer_count)
    copy(
        run.count,
        <uint8_t *>PyBytes_AS_STRING(first_bytes),
        <uint8_t *>PyBytes_AS_STRING(numbers),
        <uint8_t *>PyBytes_AS_STRING(payloads),
        <uint8_t *>PyBytes_AS_STRING(lengths),
        <uint8_t *>PyBytes_AS_STRING(answers),
    )
    for number in range(run.topic_count):
        names.append(topics[number].name[: topics[number].size])
    if run.properties_count:
        for number in range(run.count):
            if packets[number].properties_bytes:
                properties[number] = packets[number].properties[: packets[number].properties_bytes]
    columns = (first_bytes, names, numbers, payloads, lengths, answers, properties, run.position)
    return new_tuple(PublishRun, columns)


cdef void copy(
    Py_ssize_t count, uint8_t *first_bytes, uint8_t *numbers, uint8_t *payloads, uint8_t *lengths, uint8_t *answers
) noexcept nogil:
    """Copy the packets found into columns, which have exactly the room that is needed."""
    cdef Packet *packet
    cdef uint16_t topic
    cdef Py_ssize_t number
    for number in range(count):
        packet = &packets[number]
        first_bytes[number] = packet.first
        topic = <uint16_t>packet.number
        memcpy(numbers + 2 * number, &topic, 2)
        memcpy(lengths + 4 * number, &packet.payload_bytes, 4)
        memcpy(payloads, packet.payload, packet.payload_bytes)
        payloads += packet.payload_bytes
        if packet.first & 6:
            answers[0] = 0x50 if packet.first & 4 else 0x40
            answers[1] = 2
            answers[2] = packet.packet_id[0]
            answers[3] = packet.packet_id[1]
            answers += 4


cdef struct Known:  # followed by the name in memory
    int64_t code
    Py_ssize_t size

cdef struct Slot:
    uint64_t hashed
    Known *known  # NULL in an empty slot


cdef inline Topic in_c(bytes topic):
    cdef Topic result
    result.name, result.size = <const uint8_t *>PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic)
    return result


cdef inline const uint8_t *name_in(const Known *known) noexcept nogil:
    return <const uint8_t *>(known + 1)


cdef class TopicCache:
    """Hash table with linear probing, at most half full. See the Python version in `mqtt_front.kernel.topic_cache`."""

    cdef Slot *slots
    cdef Py_ssize_t size  # a power of two
    cdef Py_ssize_t count
    cdef bint in_use  # without the GIL, so no thread may change the table

    def __cinit__(self):
        self.size = 16
        self.slots = <Slot *>calloc(self.size, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self.slots != NULL:
            for at in range(self.size):
                free(self.slots[at].known)
            free(self.slots)

    def __len__(self):
        return self.count

    def get(self, bytes topic not None, default):
        cdef Topic wanted = in_c(topic)
        cdef Slot *slot = self.slot_of(hash_of(wanted.name, wanted.size), &wanted)
        return default if slot.known == NULL else slot.known.code

    def add(self, bytes topic not None, int64_t code):
        if code < 0:
            raise ValueError(f"invalid code: expected that of an accepted topic, got {code}")
        cdef Topic wanted = in_c(topic)
        self.put(&wanted, code)

    cdef int put(self, const Topic *topic, int64_t code) except -1:
        cdef uint64_t hashed = hash_of(topic.name, topic.size)
        cdef Slot *slot
        cdef Known *known
        if self.in_use:
            raise RuntimeError("known topics are used by two threads at once")
        if 2 * (self.count + 1) > self.size:
            self.grow()
        slot = self.slot_of(hashed, topic)
        if slot.known == NULL:
            known = <Known *>resized(NULL, sizeof(Known) + topic.size)
            known.size = topic.size
            memcpy(known + 1, topic.name, topic.size)
            slot.hashed, slot.known = hashed, known
            self.count += 1
        slot.known.code = code
        return 0

    cdef inline Slot *first_slot(self, uint64_t hashed) noexcept nogil:
        return &self.slots[hashed & (self.size - 1)]

    cdef inline Slot *slot_of(self, uint64_t hashed, const Topic *topic) noexcept nogil:
        """Return the slot of a topic, or the empty one where it belongs."""
        cdef Slot *slot = self.first_slot(hashed)
        cdef Slot *end = self.slots + self.size
        while slot.known != NULL:
            if slot.hashed == hashed and slot.known.size == topic.size and memcmp(
                name_in(slot.known), topic.name, topic.size
            ) == 0:
                break
            slot += 1
            if slot == end:
                slot = self.slots
        return slot

    cdef int grow(self) except -1:
        cdef Slot *old = self.slots
        cdef Py_ssize_t old_size = self.size, at, place
        cdef Slot *wider = <Slot *>calloc(2 * old_size, sizeof(Slot))
        if wider == NULL:
            raise MemoryError()
        self.slots, self.size = wider, 2 * old_size
        for at in range(old_size):
            if old[at].known != NULL:
                place = old[at].hashed & (self.size - 1)
                while wider[place].known != NULL:
                    place = (place + 1) & (self.size - 1)
                wider[place] = old[at]
        free(old)
        return 0


cdef bint look_up(TopicCache table, Run *run) noexcept nogil:
    """Set the topic id of each packet found. Returns False when a topic is unknown or in another log than the run's; a
    negative `run.log` becomes the log of the first topic."""
    cdef uint64_t hashes[ROUND]
    cdef Py_ssize_t first = 0, number, last
    cdef int64_t code = -1
    cdef bint apart = False
    cdef Packet *packet
    cdef Known *known
    # Slots and names lie scattered in memory: those of a round are prefetched together.
    while first < run.count:
        last = min(run.count, first + ROUND)
        for number in range(first, last):
            packet = &run.packets[number]
            # A device usually publishes to the topic of its previous packet.
            packet.number = number > 0 and same(&packet.topic, &run.packets[number - 1].topic)
            if not packet.number:
                hashes[number - first] = hash_of(packet.topic.name, packet.topic.size)
                prefetch(table.first_slot(hashes[number - first]))
        for number in range(first, last):
            if not run.packets[number].number:
                known = table.first_slot(hashes[number - first]).known
                if known != NULL:
                    prefetch(known)
                    prefetch(name_in(known) + run.packets[number].topic.size)
        for number in range(first, last):
            packet = &run.packets[number]
            if not packet.number:
                known = table.slot_of(hashes[number - first], &packet.topic).known
                code = UNKNOWN if known == NULL else known.code
                if known == NULL:
                    run.unknown = True
                elif run.log < 0:
                    run.log = code >> 32
                apart |= code >> 32 != run.log
            packet.number = <uint32_t>code
        first = last
    return not apart and not run.unknown


cdef inline Py_ssize_t grown(Py_ssize_t room, Py_ssize_t wanted) noexcept nogil:
    """Return the room to allocate: at least `wanted`, and at least twice the old one if it has to grow."""
    return room if wanted <= room else max(wanted, 2 * room)


cdef class ServedSession:
    """See the Python version in `mqtt_front.kernel.single_delivery`."""

    cdef public dict in_flight, released
    cdef public object client, feeds, packet_ids
    cdef public int64_t outstanding, saving_count, expiry_s
    cdef public bint no_local


cdef class ServedFeed:
    """See the Python version in `mqtt_front.kernel.single_delivery`."""

    cdef public dict forms, resend
    cdef public object session, reader, log, gap, window, state
    cdef public int64_t qos0_from
    cdef public bint takes_singles, tells_place


cdef class PolledClient:
    """See the Python version in `mqtt_front.kernel.publish_fast_path`."""

    cdef public int64_t submitted_bytes, last_seen, publish_count, gathered_count, received_bytes, sent_bytes
    cdef public int64_t sent_packets, delivery_count, inflight_limit
    cdef public bint writable, closing
    cdef public object session, permissions, publish_rates, socket, transport, counts, target

    def deliver(self, bytes data not None, int64_t count=0):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if self.transport is None or self.closing:
            return
        if count:
            self.counts.packets_sent += count
            self.sent_packets += count
        self.counts.bytes_sent += size
        self.sent_bytes += size
        if self.socket is None:
            self.transport.write(data)
        else:
            (<Socket?>self.socket).send(self.transport, data)
        if not self.writable:
            self._unread(size)

    def takes_fast_path(self):
        return self.is_plain()

    cdef inline bint is_plain(self) except -1:
        return (
            self.session is not None and self.permissions is None and self.publish_rates is None
            and not self.session.no_local
        )


cdef class AdmittedCount:
    """See the Python version in `mqtt_front.kernel.publish_fast_path`."""

    cdef public int64_t unacknowledged


def discharge(list sources not None, list sizes not None):
    cdef Py_ssize_t number
    if len(sources) != len(sizes):
        raise ValueError(f"{len(sizes)} sizes of {len(sources)} sources")
    for number in range(len(sources)):
        source = sources[number]
        if isinstance(source, PolledClient):
            (<PolledClient>source).submitted_bytes -= <int64_t>sizes[number]
        else:
            source.submitted_bytes -= sizes[number]


cdef struct Ack:  # a pending PUBACK and the position of its client
    uint32_t place
    uint8_t packet_id[2]


cdef class PublishFastPath:
    """See the Python version in `mqtt_front.kernel.publish_fast_path`."""

    cdef TopicCache known
    cdef Py_ssize_t packet_bytes
    cdef Packet *packets
    cdef Py_ssize_t packet_room
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size_bytes
    cdef public bint paused
    cdef int64_t log
    cdef PyObject *data  # a bytes object with room at its end, which `finish` shortens instead of copying
    cdef Py_ssize_t data_bytes
    cdef Py_ssize_t record_room
    cdef uint32_t *lengths
    cdef uint32_t *ids
    cdef uint8_t *flags
    cdef Py_ssize_t ack_room
    cdef readonly Py_ssize_t answer_count
    cdef Ack *acks
    cdef dict places
    cdef list sizes
    cdef list ack_counts

    def __cinit__(self, TopicCache known not None, packet_bytes):
        self.known = known
        self.packet_bytes = min(max(packet_bytes, 0), LONGEST + 5)
        self.clear()

    def __dealloc__(self):
        free(self.packets)
        free(self.lengths)
        free(self.ids)
        free(self.flags)
        free(self.acks)
        Py_XDECREF(self.data)

    cdef void clear(self):
        self.count = self.size_bytes = self.data_bytes = self.answer_count = 0
        self.log = -1
        self.places, self.sizes, self.ack_counts = {}, [], []

    cdef int have_room(self, Py_ssize_t records, Py_ssize_t answers, Py_ssize_t data_bytes) except -1:
        """Allocate room for a total of so many records, acknowledgements and bytes."""
        cdef PyObject *data
        if records > self.record_room:
            self.lengths = <uint32_t *>resized(self.lengths, 4 * records)
            self.ids = <uint32_t *>resized(self.ids, 4 * records)
            self.flags = <uint8_t *>resized(self.flags, records)
            self.record_room = records
        if answers > self.ack_room:
            self.acks = <Ack *>resized(self.acks, answers * sizeof(Ack))
            self.ack_room = answers
        if self.data == NULL or data_bytes > PyBytes_GET_SIZE(<object>self.data):
            # Not by `resize_bytes`: if memory runs out, that frees what was taken.
            data = new_bytes(NULL, data_bytes)
            if data == NULL:
                raise MemoryError()
            if self.data != NULL:
                memcpy(bytes_in(data), bytes_in(self.data), self.data_bytes)
                Py_XDECREF(self.data)
            self.data = data
        return 0

    cdef int make_room(self, const Run *run) except -1:
        """Allocate room for one more run, and twice the room when it has to grow."""
        cdef Py_ssize_t data_room = 0 if self.data == NULL else PyBytes_GET_SIZE(<object>self.data)
        return self.have_room(
            grown(self.record_room, self.count + run.count),
            grown(self.ack_room, self.answer_count + run.answer_count),
            grown(data_room, self.data_bytes + run.data_bytes),
        )

    def take(
        self, PolledClient source not None, bytearray buffer not None, Py_ssize_t position, Py_ssize_t end, int level,
        int64_t room,
    ):
        if not 0 <= position <= end <= PyByteArray_GET_SIZE(buffer):
            raise ValueError(f"bytes {position} to {end} of {len(buffer)}")
        held = memoryview(buffer)  # prevents resizing during the call
        return self.take_run(source, <const uint8_t *>PyByteArray_AS_STRING(buffer), position, end, level, room)

    cdef Py_ssize_t take_run(
        self, PolledClient source, const uint8_t *data, Py_ssize_t position, Py_ssize_t end, int level, int64_t room
    ) except -1:
        self.check_unused()
        cdef Run run
        if not self.take_known(source, data, position, end, level, room, &run):
            # Again from the start: `bring` may have run code that added publishes.
            if not run.unknown or not source.bring(self.unknown_of(&run)):
                return position
            if not self.take_known(source, data, position, end, level, room, &run):
                return position
        return run.position

    cdef bint take_known(
        self, PolledClient source, const uint8_t *data, Py_ssize_t position, Py_ssize_t end, int level, int64_t room,
        Run *run,
    ) except -1:
        cdef TopicCache known = self.known
        cdef uint32_t place
        cdef bint found
        make_room(&self.packets, &self.packet_room, (end - position) // SHORTEST)
        if end - position < LONG_BYTES:
            found = self.find(known, data, position, end, level, room, run)
        else:
            known.in_use = True
            with nogil:
                found = self.find(known, data, position, end, level, room, run)
            known.in_use = False
        if not found:
            return False
        self.make_room(run)
        place = self.place_of(source)
        if run.data_bytes < LONG_BYTES:
            self.copy_run(run, place)
        else:
            known.in_use = True
            with nogil:
                self.copy_run(run, place)
            known.in_use = False
        self.charge(source, place, run, run.position - position)
        return True

    cdef bint find(
        self, TopicCache known, const uint8_t *data, Py_ssize_t position, Py_ssize_t end, int level, int64_t room,
        Run *run,
    ) noexcept nogil:
        """Find publishes and the ids of their topics. Returns False when they need the general path."""
        memset(run, 0, sizeof(Run))
        run.packets, run.log = self.packets, self.log
        scan(data, position, end, level == 5, self.packet_bytes, False, run)
        if run.count == 0 or run.properties_count or run.answer_count > room or run.firsts & 5:  # RETAIN or QoS 2
            return False
        return look_up(known, run)

    cdef uint32_t place_of(self, source) except? 0xFFFFFFFF:
        """Return the position of a source in `places`, or the one it will get."""
        cdef PyObject *found = PyDict_GetItemWithError(self.places, source)
        return <uint32_t>len(self.sizes) if found == NULL else <object>found

    cdef int charge(self, PolledClient source, uint32_t place, const Run *run, Py_ssize_t size_bytes) except -1:
        """Count a run of `size_bytes` bytes on the wire for its source."""
        source.submitted_bytes += size_bytes
        source.publish_count += run.count
        source.gathered_count += run.count
        if place == len(self.sizes):
            self.places[source] = place
            self.sizes.append(size_bytes)
            self.ack_counts.append(run.answer_count)
        else:
            self.sizes[place] += size_bytes
            self.ack_counts[place] += run.answer_count
        self.log = run.log
        self.size_bytes += size_bytes
        return 0

    cdef void copy_run(self, const Run *run, uint32_t place) noexcept nogil:
        """Append the packets found, whose `number` is a topic id, to the columns. The caller has allocated the room."""
        cdef uint8_t *at = <uint8_t *>bytes_in(self.data) + self.data_bytes
        cdef Py_ssize_t number
        cdef const Packet *packet
        cdef Ack *ack
        for number in range(run.count):
            packet = &run.packets[number]
            prefetch(at + AHEAD_BYTES)
            prefetch(at + AHEAD_BYTES + 64)
            memcpy(at, packet.payload, packet.payload_bytes)
            at += packet.payload_bytes
            self.lengths[self.count + number] = packet.payload_bytes
            self.ids[self.count + number] = packet.number
            self.flags[self.count + number] = packet.first & 2
            if packet.first & 2:
                ack = &self.acks[self.answer_count]
                ack.place = place
                ack.packet_id[0], ack.packet_id[1] = packet.packet_id[0], packet.packet_id[1]
                self.answer_count += 1
        self.count += run.count
        self.data_bytes += run.data_bytes

    cdef int check_unused(self) except -1:
        if self.known.in_use:
            raise RuntimeError("a gathering is used by two threads at once")
        return 0

    cdef list unknown_of(self, const Run *run):
        """Return the unknown topics of a run without repetition."""
        cdef dict topics = {}
        cdef Py_ssize_t number
        cdef const Topic *topic
        for number in range(run.count):
            if run.packets[number].number == UNKNOWN:
                topic = &run.packets[number].topic
                topics[topic.name[: topic.size]] = None
        return list(topics)

    def finish(self):
        self.check_unused()
        cdef bytes data
        if self.data == NULL:
            data = b""
        else:
            resize_bytes(&self.data, self.data_bytes)
            data = <bytes>self.data
            Py_XDECREF(self.data)
            self.data = NULL
        cdef list answers = [PyBytes_FromStringAndSize(NULL, 4 * <Py_ssize_t>count) for count in self.ack_counts]
        columns = (
            self.log,
            self.count,
            self.size_bytes,
            data,
            PyBytes_FromStringAndSize(<char *>self.lengths, 4 * self.count),
            PyBytes_FromStringAndSize(<char *>self.ids, 4 * self.count),
            PyBytes_FromStringAndSize(<char *>self.flags, self.count),
            list(self.places),
            self.sizes,
            answers,
        )
        if self.answer_count:
            self.put_acks(answers)
        self.clear()
        return new_tuple(PublishColumns, columns)

    cdef int put_acks(self, list answers) except -1:
        """Write each acknowledgement into the answer of its source, in one pass."""
        cdef Py_ssize_t number
        cdef uint8_t **behind = <uint8_t **>resized(NULL, len(answers) * sizeof(uint8_t *))
        cdef uint8_t *at
        for number in range(len(answers)):
            behind[number] = <uint8_t *>PyBytes_AS_STRING(answers[number])
        for number in range(self.answer_count):
            at = behind[self.acks[number].place]
            at[0], at[1] = 0x40, 2
            at[2], at[3] = self.acks[number].packet_id[0], self.acks[number].packet_id[1]
            behind[self.acks[number].place] = at + 4
        free(behind)
        return 0


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)  # as `time.perf_counter_ns` reads it
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef class CollectedTurn:
    """See the Python version in `mqtt_front.kernel.publish_fast_path`."""

    cdef public int64_t modest_bytes, room_bytes, received_count, gathered_count
    cdef public PublishFastPath gathering
    cdef public bint _at_written
    cdef public object _turn, _turns, _router, _loop, _traces, _shares, _written, _settled
    cdef public object acknowledge_all, answer_times

    def flush(self):
        if self._turn is not None:  # then the fast path is paused, and has none
            self._submit_turn()
        elif self.gathering.count:
            self.flush_collected()

    cdef int flush_collected(self) except -1:
        """Append a turn in this thread if nothing precedes it and the level `written` suffices. Most of it is then
        delivered and acknowledged at once, without any state to keep."""
        cdef PublishFastPath gathering = self.gathering
        cdef int64_t began_ns = now_ns(), count = gathering.count, answer_count = gathering.answer_count
        cdef int64_t size_bytes = gathering.size_bytes, number = gathering.log
        cdef uint32_t topic_id = gathering.ids[0]
        cdef uint8_t flags = gathering.flags[0]
        columns = gathering.finish()
        self.room_bytes -= size_bytes
        self.received_count += count
        self.gathered_count += count
        if self._turns or (answer_count and not self._at_written):
            self._submit_collected(columns)
            return 0
        batch = WriteBatch.single((<tuple>columns)[3], topic_id, flags) if count == 1 else columns.write_batch()
        retained = self._router.retained[number]
        cdef list woken = []
        trace = self._traces.begin(began_ns) if began_ns >= <int64_t>self._traces.due_ns else None
        try:
            outcome = self._router.appendable[number].append_now(batch, woken)
        except (TimestoneError, OSError) as error:
            outcome = error
        appended = isinstance(outcome, range)
        if trace is not None and appended:
            trace.written(retained.log, outcome)
        if woken:
            self._written(woken, began_ns)
        if not appended:
            self._submit_collected(columns, began_ns, trace, outcome)
            return 0
        if size_bytes > self.modest_bytes or self._shares.looks_left:
            self._shares.submitted((<tuple>columns)[7])
        else:
            self._shares.modest_s = self._loop.time()
        if answer_count:
            self.acknowledge_all([columns])
            self.answer_times.observe(now_ns() - began_ns, answer_count)
        if trace is not None:
            self._traces.acknowledged(trace, answer_count)
        key = retained.log.key
        self._settled[key] = outcome.stop
        discharge((<tuple>columns)[7], (<tuple>columns)[8])
        self.room_bytes += size_bytes
        if retained.position == outcome.start:  # none of them is retained
            retained.position = outcome.stop
        else:
            self._follow(key, outcome)
        if self._shares.held:
            self._shares.settled(self.submitted_bytes)
        return 0


cdef enum:
    BATCH = 64  # sockets of one epoll call
    BATCHES = 16
    BULKY_BYTES = 16384

cdef int64_t NO_LIMIT = 1 << 32


cdef class Socket:
    """Socket of a client, registered with `Sockets`."""

    cdef readonly int fd  # -1: removed
    cdef readonly bint reading
    cdef bint buffered  # the transport may have unsent bytes
    cdef PolledClient link
    cdef AdmittedCount connection
    cdef int level
    cdef uint32_t generation
    cdef bint between  # the next byte begins a packet, and packets are accepted
    cdef bint bulky  # the previous read returned much

    cdef int send(self, transport, bytes data) except -1:
        """Send at once if the transport has no unsent bytes; pass the rest to the transport."""
        cdef Py_ssize_t sent = 0, size = PyBytes_GET_SIZE(data)
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef int fd = self.fd
        if fd >= 0 and not (self.buffered and transport.get_write_buffer_size()):
            self.buffered = False
            if size >= BULKY_BYTES:
                with nogil:
                    sent = socket_send(fd, start, size)
            else:
                sent = socket_send(fd, start, size)
        if sent < size:  # also after an error: the transport meets the same one and handles it
            self.buffered = True
            transport.write(data if sent <= 0 else data[sent:])
        return 0


cdef class Sockets:
    """Sockets of plain TCP clients, read and answered in one call for all: see `mqtt_front.net.poller`."""

    cdef int poll
    cdef PublishFastPath gathering
    cdef CollectedTurn ingest
    cdef bytearray memory
    cdef object held
    cdef Py_ssize_t front
    cdef Py_ssize_t piece_bytes
    cdef list by_fd
    cdef uint32_t generation
    cdef bint receiving
    cdef Py_ssize_t plain_bytes

    def __cinit__(
        self, CollectedTurn ingest not None, bytearray memory not None, Py_ssize_t front, Py_ssize_t piece_bytes
    ):
        self.poll = -1
        if not 0 <= front < PyByteArray_GET_SIZE(memory):
            raise ValueError(f"byte {front} of {len(memory)}")
        self.gathering, self.ingest, self.memory, self.front = ingest.gathering, ingest, memory, front
        self.held = memoryview(memory)  # prevents resizing
        self.piece_bytes = piece_bytes
        self.by_fd = []
        self.poll = poll_open()
        if self.poll < 0:
            raise system_error()

    def __dealloc__(self):
        poll_close(self.poll)

    def close(self):
        poll_close(self.poll)
        self.poll = -1
        self.by_fd.clear()

    def fileno(self):
        return self.poll

    def add(self, PolledClient link not None, int fd):
        cdef Socket one = Socket.__new__(Socket)
        if fd < 0:
            raise ValueError(f"descriptor {fd}")
        one.fd, one.link, one.connection, one.level = fd, link, link.connection, link.connection.level
        one.buffered = True
        self.generation += 1
        one.generation = self.generation
        self.watch(one)
        while len(self.by_fd) <= fd:
            self.by_fd.append(None)
        self.by_fd[fd] = one
        return one

    def pause(self, Socket one not None):
        if one.reading:
            one.reading = False
            if poll_forget(self.poll, one.fd) < 0 and errno != ENOENT:
                raise system_error()

    def resume(self, Socket one not None):
        if one.fd >= 0 and not one.reading:
            self.watch(one)

    def remove(self, Socket one not None):
        if one.fd >= 0:
            if one.reading:
                poll_forget(self.poll, one.fd)  # an error does not matter: the socket is not read again
            if one.fd < len(self.by_fd) and self.by_fd[one.fd] is one:
                self.by_fd[one.fd] = None
            one.fd = -1
            one.reading = False
            one.link = one.connection = None

    cdef int watch(self, Socket one) except -1:
        if poll_watch(self.poll, one.fd, <uint64_t>one.generation << 32 | <uint32_t>one.fd) < 0:
            raise system_error()
        one.reading = True
        one.between = False
        return 0

    def receive(self, int64_t now, Py_ssize_t limit_bytes, failed):
        cdef uint64_t keys[BATCH]
        cdef int count, number, batch
        cdef Py_ssize_t total = 0
        cdef Socket one
        cdef PolledClient link
        if self.receiving:
            raise RuntimeError("receive is called by what it calls")
        self.receiving, self.plain_bytes = True, 0
        try:
            for batch in range(BATCHES):
                # The call does not block, so releasing the GIL would take longer than the call.
                count = poll_ready(self.poll, keys, BATCH)
                if count < 0:
                    if errno == EINTR:
                        break
                    raise system_error()
                for number in range(count):
                    one = self.found(keys[number])
                    if one is None:
                        continue
                    link = one.link
                    try:
                        total += self.read(one, link, now)
                    except Exception as error:
                        failed(link, error)
                if count < BATCH or total >= limit_bytes:
                    break
        finally:
            self.receiving = False
        return self.plain_bytes

    cdef Socket found(self, uint64_t key):
        """Return the socket of an event; None when an earlier event of the batch closed or paused it, in which case the
        descriptor may belong to another socket."""
        cdef Py_ssize_t fd = <Py_ssize_t>(key & 0xFFFFFFFFu)
        if fd >= len(self.by_fd):
            return None
        cdef Socket one = self.by_fd[fd]
        return one if one is not None and one.generation == key >> 32 and one.reading else None

    cdef Py_ssize_t read(self, Socket one, PolledClient link, int64_t now) except -1:
        cdef Py_ssize_t front = self.front, room = PyByteArray_GET_SIZE(self.memory) - front, got, answers, behind
        cdef uint8_t *data = <uint8_t *>PyByteArray_AS_STRING(self.memory)
        cdef int fd = one.fd
        if one.bulky and one.between and not self.gathering.paused and link.is_plain():
            return self.read_bulk(one, link, now)
        if one.bulky:
            with nogil:
                got = socket_receive(fd, data + front, room)
        else:
            got = socket_receive(fd, data + front, room)
        if got <= 0:
            self.nothing_read(one, link, got)
            return 0
        one.bulky = got >= BULKY_BYTES
        if one.between and are_pubacks(data + front, got):
            self.take_pubacks(link, data + front, got, now)
        elif one.between and not self.gathering.paused and link.is_plain():
            self.note_received(link, got, now)
            answers = self.gathering.answer_count
            behind = self.gathering.take_run(link, data, front, front + got, one.level, self.room_of(one))
            self.taken(one, link, answers, front, behind, front + got)
        else:
            link.buffer_updated(got)
            self.look(one)
        return got

    cdef Py_ssize_t read_bulk(self, Socket one, PolledClient link, int64_t now) except -1:
        """Receive, find and copy the publishes of a client with much to read, in one section without the GIL: each
        section more is another chance to lose the GIL to a busy thread."""
        cdef PublishFastPath gathering = self.gathering
        cdef TopicCache known = gathering.known
        cdef Py_ssize_t front = self.front, size = PyByteArray_GET_SIZE(self.memory) - front, got
        cdef Py_ssize_t most = max(self.piece_bytes, gathering.size_bytes) + size  # bytes of the turn on the wire
        cdef uint8_t *data = <uint8_t *>PyByteArray_AS_STRING(self.memory)
        cdef Py_ssize_t answers = gathering.answer_count, behind = front
        cdef int64_t room = self.room_of(one)
        cdef int fd = one.fd, level = one.level
        cdef uint32_t place = gathering.place_of(link)
        cdef bint found = False
        cdef Run run
        gathering.check_unused()
        make_room(&gathering.packets, &gathering.packet_room, size // SHORTEST)
        gathering.have_room(most // SHORTEST, most // SHORTEST, most)
        known.in_use = True
        with nogil:
            got = socket_receive(fd, data + front, size)
            if got > 0:
                found = gathering.find(known, data, front, front + got, level, room, &run)
                if found:
                    gathering.copy_run(&run, place)
        known.in_use = False
        if got <= 0:
            self.nothing_read(one, link, got)
            return 0
        one.bulky = got >= BULKY_BYTES
        if found:
            behind = run.position
            gathering.charge(link, place, &run, behind - front)
        elif run.unknown:
            behind = gathering.take_run(link, data, front, front + got, level, room)
        elif are_pubacks(data + front, got):
            self.take_pubacks(link, data + front, got, now)
            return got
        self.note_received(link, got, now)
        self.taken(one, link, answers, front, behind, front + got)
        return got

    cdef void note_received(self, PolledClient link, Py_ssize_t size, int64_t now) noexcept:
        link.last_seen = now
        link.received_bytes += size
        self.plain_bytes += size

    cdef int take_pubacks(self, PolledClient link, const uint8_t *data, Py_ssize_t size, int64_t now) except -1:
        cdef Py_ssize_t at
        self.note_received(link, size, now)
        link.take_pubacks([data[at] << 8 | data[at + 1] for at in range(2, size, 4)])
        return 0

    cdef int nothing_read(self, Socket one, link, Py_ssize_t got) except -1:
        """Handle the end of a connection, an error, or a read that would block."""
        if got < 0 and (errno == EAGAIN or errno == EINTR):
            return 0
        error = None if got == 0 else system_error()
        self.remove(one)
        link.reading_ended(error)
        return 0

    cdef int64_t room_of(self, Socket one) except -1:
        """Return how many more publishes the client may have unacknowledged."""
        return NO_LIMIT if one.level < 5 else (<object>one.connection).room

    cdef int taken(
        self, Socket one, PolledClient link, Py_ssize_t answers, Py_ssize_t position, Py_ssize_t behind, Py_ssize_t end
    ) except -1:
        """Account for bytes `position` to `behind`, which the fast path took, and pass the rest to the client.

        `answers` is the number of acknowledgements before."""
        cdef PublishFastPath gathering = self.gathering
        if gathering.answer_count > answers and one.connection is not None:  # `bring` may have ended it
            one.connection.unacknowledged += gathering.answer_count - answers
        if behind > position and (
            link.submitted_bytes > self.ingest.modest_bytes or gathering.size_bytes > self.ingest.room_bytes
        ):
            (<object>self.ingest).charged(link)
        if behind < end:
            link.take_rest(behind, end)
            self.look(one)
        if gathering.size_bytes >= self.piece_bytes:
            self.ingest.flush()
        return 0

    cdef int look(self, Socket one) except -1:
        """Refresh cached state after Python code has handled packets."""
        one.between = one.fd >= 0 and (<object>one.connection).between_packets
        if one.between:
            one.level = (<object>one.connection).level
        return 0

    def acknowledge(self, list turns not None):
        cdef Py_ssize_t number, byte_count = 0
        cdef list links, answers
        cdef dict merged
        if len(turns) == 1:
            links, answers = turns[0]
            if len(links) != len(answers):
                raise ValueError(f"{len(answers)} answers to {len(links)} links")
            for number in range(len(links)):
                byte_count += self.answer(links[number], answers[number])
        else:
            merged = {}
            for links, answers in turns:
                for link, answer in zip(links, answers, strict=True):
                    if not answer:
                        continue
                    earlier = merged.get(link)
                    if earlier is None:
                        merged[link] = answer
                    elif type(earlier) is list:
                        (<list>earlier).append(answer)
                    else:
                        merged[link] = [earlier, answer]
            for link, answer in merged.items():
                byte_count += self.answer(link, b"".join(answer) if type(answer) is list else answer)
        return byte_count // 4, byte_count

    cdef Py_ssize_t answer(self, PolledClient link, bytes data) except -1:
        """Send acknowledgements to a client. Returns the bytes that the client protocol does not count itself."""
        cdef Py_ssize_t size = 0 if data is None else PyBytes_GET_SIZE(data)
        if size == 0:
            return 0
        cdef Socket one = link.socket
        if one is None or one.fd < 0 or not link.writable:
            link.acknowledge(data, size // 4)
            return 0
        one.connection.unacknowledged -= size // 4
        link.sent_packets += size // 4
        link.sent_bytes += size
        one.send(link.transport, data)
        return size


cdef object system_error():
    cdef int code = errno
    return OSError(code, strerror(code).decode("ascii", "replace"))


cdef inline bint are_pubacks(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Return whether the bytes are complete PUBACKs without a reason, and nothing else."""
    cdef Py_ssize_t at
    if size & 3:
        return False
    for at in range(0, size, 4):
        if data[at] != 0x40 or data[at + 1] != 2 or not (data[at + 2] | data[at + 3]):
            return False
    return True


cdef class Strided:
    """Column of integers with any stride, held for the lifetime of this object."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *data
    cdef Py_ssize_t step
    cdef Py_ssize_t count

    def __cinit__(self, source, Py_ssize_t item_bytes):
        PyObject_GetBuffer(source, &self.view, PyBUF_STRIDED_RO)
        self.held = True
        if self.view.ndim != 1 or self.view.itemsize != item_bytes:
            raise ValueError(f"no column of {item_bytes}-byte items")
        self.data = <const uint8_t *>self.view.buf
        self.step = self.view.strides[0]
        self.count = self.view.shape[0]

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef struct Shape:  # a form in C; its bytes belong to a form to which the caller holds a reference
    const uint8_t *head
    Py_ssize_t head_bytes
    const uint8_t *block
    Py_ssize_t block_bytes
    int64_t first_offset
    int qos
    bint retain
    bint wanted

cdef struct Delivery:
    const uint8_t *payload
    Shape *shape
    Py_ssize_t payload_bytes
    Py_ssize_t remaining
    uint8_t first
    uint16_t packet_id

# Scratch memory of `frame_records`, under the same rules as that of `scan_publishes`.
cdef Delivery *deliveries = NULL
cdef Py_ssize_t delivery_room = 0
cdef Shape *shapes = NULL
cdef Py_ssize_t shape_room = 0


cdef int make_delivery_room(Py_ssize_t count) except -1:
    global deliveries, delivery_room, shapes, shape_room
    if count > delivery_room:
        deliveries = <Delivery *>resized(deliveries, count * sizeof(Delivery))
        delivery_room = count
    if count > shape_room:
        shapes = <Shape *>resized(shapes, count * sizeof(Shape))
        shape_room = count
    return 0


cdef int take_form(object form, Shape *shape) except -1:
    """Convert a form to C. The result points into the bytes of the form."""
    cdef bytes head, block
    shape.wanted = form is not None
    if form is None:
        return 0
    if not isinstance(form, tuple):
        raise TypeError(f"a form is {type(form).__name__}, not a tuple")
    head, block, qos, retain, first_offset = <tuple>form  # no iterator: the garbage collector tracks them
    if head is None or block is None or not 0 <= qos <= 2:
        raise ValueError(f"no form: {form}")
    shape.head, shape.head_bytes = <const uint8_t *>PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)
    shape.block, shape.block_bytes = <const uint8_t *>PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block)
    shape.qos, shape.retain, shape.first_offset = qos, retain, first_offset
    return 0


cdef inline int varint_bytes(Py_ssize_t value) noexcept nogil:
    return 1 if value < 128 else 2 if value < 16_384 else 3 if value < 2_097_152 else 4


cdef inline uint8_t *put(uint8_t *at, const void *source, Py_ssize_t size) noexcept nogil:
    memcpy(at, source, size)
    return at + size


cdef void write(uint8_t *at, const Delivery *found, Py_ssize_t count) noexcept nogil:
    """Write the packets of the deliveries found; `at` has exactly the room that is needed."""
    cdef const Delivery *one
    cdef Py_ssize_t number, value
    for number in range(count):
        one = &found[number]
        at[0] = one.first
        at += 1
        value = one.remaining
        while value > 127:
            at[0] = value & 0x7F | 0x80
            at += 1
            value >>= 7
        at[0] = <uint8_t>value
        at = put(at + 1, one.shape.head, one.shape.head_bytes)
        if one.first & 6:
            at[0] = one.packet_id >> 8
            at[1] = one.packet_id & 0xFF
            at += 2
        at = put(at, one.shape.block, one.shape.block_bytes)
        at = put(at, one.payload, one.payload_bytes)


cdef bytes framed(form, int qos, int retain, int packet_id, bytes payload, int64_t size_limit):
    """Return the PUBLISH packet of one record at `qos`, which its form grants; None if it would exceed `size_limit`."""
    cdef Shape shape
    cdef Delivery one
    take_form(form, &shape)
    one.first = <uint8_t>(0x30 | qos << 1 | (retain if shape.retain else 0))
    one.packet_id = <uint16_t>packet_id
    one.shape = &shape
    one.payload, one.payload_bytes = <const uint8_t *>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
    one.remaining = shape.head_bytes + shape.block_bytes + one.payload_bytes + (2 if qos else 0)
    cdef Py_ssize_t total = 1 + varint_bytes(one.remaining) + one.remaining
    if one.remaining > LONGEST or total > size_limit:
        return None
    cdef bytes packet = PyBytes_FromStringAndSize(NULL, total)
    write(<uint8_t *>PyBytes_AS_STRING(packet), &one, 1)
    return packet


cdef class SingleDelivery:
    """See the Python version in `mqtt_front.kernel.single_delivery`."""

    cdef object parked, in_flight, changed, counts, by_log, traces, wake_type
    cdef tuple shared

    def __init__(self, parked, in_flight, changed, counts, traces, wake_type):
        self.parked, self.in_flight, self.changed, self.counts = parked, in_flight, changed, counts
        self.by_log, self.traces, self.wake_type = counts.by_log, traces, wake_type

    def serve(self, list woken not None, int64_t began_ns):
        cdef list left = []
        cdef int64_t sent_count = 0
        cdef int sent
        cdef ServedFeed feed
        for one in woken:
            reader, first_offset = <tuple>one
            wake = getattr(reader, "on_wake", None)
            sent = 0
            if type(wake) is self.wake_type:
                feed = wake.feed
                if reader.offset < first_offset:  # as `Reader.wake` does
                    reader.offset = first_offset
                if feed.state is self.parked:
                    sent = self.send_to(feed, reader)
            sent_count += sent > 0
            if sent != 1:
                left.append(one)
        if sent_count:
            self.counts.delivered += sent_count
            self.counts.latency.observe(now_ns() - began_ns, sent_count)
        return left

    def send(self, ServedFeed feed not None):
        cdef int sent = self.send_shared(feed)
        if not sent:
            sent = self.send_to(feed, feed.reader)
            if sent:
                self.count(feed, 1)
        return sent

    def share(self, tuple place not None, tuple key not None, tuple sent not None):
        self.shared = (place, key, sent)

    cdef int send_shared(self, ServedFeed feed) except -1:
        cdef PolledClient client
        cdef PyObject *form
        if self.shared is None or self.traces.is_open:
            return 0
        place, key, what = self.shared
        log, first, _, topics = <tuple>place
        packet_bytes, forms = <tuple>key
        reader = feed.reader
        if (
            feed.log is not log
            or not self.is_plain(feed, reader)
            or reader.offset != first
            or reader.topics != topics
        ):
            return 0
        client = (<ServedSession>feed.session).client
        if (<tuple>client.target)[1] != packet_bytes or (<tuple>client.target)[2] is not None:
            return 0
        for topic_id, head, block, retain in <tuple>forms:
            form = PyDict_GetItemWithError(feed.forms, topic_id)
            if form == NULL or <object>form is None:
                return 0
            if (<tuple>form)[2] or <int64_t>first < max(<int64_t>(<tuple>form)[4], feed.qos0_from):
                return 0
            if (<tuple>form)[0] != head or (<tuple>form)[1] != block or (<tuple>form)[3] != retain:
                return 0
        log.check_open()
        data, count, following = <tuple>what
        client.delivery_count += <int64_t>count
        cdef int sent = self.sent(feed, reader, data, count, following)
        self.count(feed, count)
        return sent

    cdef int count(self, ServedFeed feed, int64_t count) except -1:
        """Count messages that were sent to a feed that had been ready."""
        self.counts.delivered += count
        self.counts.latency.observe(now_ns() - <int64_t>(<object>feed).ready_ns, count)
        return 0

    cdef bint is_plain(self, ServedFeed feed, reader) except -1:
        """Return whether what a feed gives is its client's as it is, and at once."""
        cdef ServedSession session = feed.session
        cdef PolledClient client = session.client
        return not (
            client is None
            or reader is None
            or feed.reader is not reader
            or not feed.takes_singles
            or not client.writable
            or session.outstanding >= client.inflight_limit
            or session.saving_count
            or feed.resend
            or feed.gap is not None
            or feed.tells_place
            or (len(session.feeds) > 1 and session.must_wait(feed))
        )

    cdef int send_to(self, ServedFeed feed, reader) except -1:
        cdef ServedSession session = feed.session
        cdef PolledClient client = session.client
        if not self.is_plain(feed, reader):
            return 0
        log = feed.log
        record = log.single(reader.offset)
        if record is None:
            return 0
        offset_object, topic_id, flag_bits, header_length, stored = <tuple?>record
        cdef int64_t offset = offset_object
        cdef PyObject *form = PyDict_GetItemWithError(feed.forms, topic_id)
        if form == NULL or <object>form is None or header_length or (<tuple>client.target)[2] is not None:
            return 0
        if offset < <int64_t>(<tuple>form)[4]:
            return 0
        cdef int flags = flag_bits, qos = min(flags >> 1 & 3, <int>(<tuple>form)[2]), packet_id = 0
        if qos == 2 or (qos == 0 and offset < feed.qos0_from):
            return 0
        cdef dict in_flight = session.in_flight
        if qos:
            if session.released:
                return 0
            packet_id = <int>session.packet_ids.last % PACKET_ID_MAX + 1
            while packet_id in in_flight:
                packet_id = packet_id % PACKET_ID_MAX + 1
        packet = framed(<object>form, qos, flags & 1, packet_id, stored, (<tuple>client.target)[1])
        if packet is None:
            return 0
        if qos:
            in_flight[packet_id] = new_tuple(self.in_flight, (feed, offset, qos))
            feed.window.sent((offset,))
            session.outstanding += 1
            session.packet_ids.last = packet_id
        following = offset + 1
        client.delivery_count += 1
        cdef int sent = self.sent(feed, reader, packet, 1, following)
        if self.traces.is_open:
            self.traces.delivered(log, range(offset, following))
        return sent

    cdef int sent(self, ServedFeed feed, reader, bytes data, count, following) except -1:
        """Deliver, note it, and park the reader. Return 2 if there is more to read."""
        cdef ServedSession session = feed.session
        window, name = feed.window, feed.log.name
        if window.seen < following:
            window.seen = following
        reader.offset = following
        session.client.deliver(data)
        cdef PyObject *earlier = PyDict_GetItemWithError(self.by_log, name)
        PyDict_SetItem(self.by_log, name, count if earlier == NULL else <object>earlier + count)
        if session.expiry_s:
            self.changed(session)
        if not reader.park():
            return 2
        feed.state = self.parked
        return 1


def frame_records(records, dict forms not None, packet_ids, int64_t qos0_from, size_limit):
    cdef bytes data
    data, offset_column, topic_column, flag_column, start_column, length_column = records
    cdef Strided offset_at = Strided(offset_column, 8)
    cdef Strided topic_at = Strided(topic_column, 4)
    cdef Strided flag_at = Strided(flag_column, 2)
    cdef Strided start_at = Strided(start_column, 8)
    cdef Strided length_at = Strided(length_column, 4)
    cdef Py_ssize_t end = offset_at.count
    if not end == topic_at.count == flag_at.count == start_at.count == length_at.count:
        raise ValueError("columns of different lengths")
    make_delivery_room(end)

    cdef Py_ssize_t limit = min(max(size_limit, 0), LONGEST + 5)
    cdef Py_ssize_t size = len(data)
    cdef list ids = packet_ids if type(packet_ids) is list else list(packet_ids)
    cdef Py_ssize_t total = 0, count = 0, taken = 0, shape_count = 0, place, packet_bytes, id_count = len(ids)
    cdef int64_t offset, start
    cdef uint32_t topic, length, last_topic = 0
    cdef uint16_t flags
    cdef int qos
    cdef Shape *shape = NULL
    cdef Delivery *one
    cdef PyObject *found
    cdef list kept = [], offsets = []
    cdef bytearray levels = bytearray()
    for place in range(end):
        memcpy(&topic, topic_at.data + place * topic_at.step, 4)
        if shape == NULL or topic != last_topic:
            found = PyDict_GetItemWithError(forms, topic)
            if found == NULL:
                end = place
                break
            kept.append(<object>found)
            shape = &shapes[shape_count]
            take_form(<object>found, shape)
            shape_count += 1
            last_topic = topic
        if not shape.wanted:
            continue
        memcpy(&offset, offset_at.data + place * offset_at.step, 8)
        memcpy(&flags, flag_at.data + place * flag_at.step, 2)
        memcpy(&length, length_at.data + place * length_at.step, 4)
        qos = min(flags >> 1 & 3, shape.qos)
        if qos == 0 and shape.first_offset <= offset and offset < qos0_from:
            continue
        one = &deliveries[count]
        one.remaining = shape.head_bytes + shape.block_bytes + length + (2 if qos else 0)
        packet_bytes = 1 + varint_bytes(one.remaining) + one.remaining
        if (
            offset < shape.first_offset
            or one.remaining > LONGEST
            or packet_bytes > limit
            or (qos and taken == id_count)
        ):
            end = place
            break
        memcpy(&start, start_at.data + place * start_at.step, 8)
        if start < 0 or start > size or length > size - start:
            raise ValueError(f"{length} bytes at {start} of {size}")
        if qos:
            one.packet_id = ids[taken]
            taken += 1
            offsets.append(offset)
            levels.append(qos)
        one.first = 0x30 | qos << 1 | (flags & 1 if shape.retain else 0)
        one.shape = shape
        one.payload = <const uint8_t *>PyBytes_AS_STRING(data) + start
        one.payload_bytes = length
        total += packet_bytes
        count += 1
    cdef bytes framed = PyBytes_FromStringAndSize(NULL, total)
    write(<uint8_t *>PyBytes_AS_STRING(framed), deliveries, count)
    return new_tuple(Framed, (framed, end, count, offsets, bytes(levels)))
