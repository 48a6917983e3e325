"""The records a benchmark writes: their number, their length, and their bytes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

_POOL_BYTES = 16 << 20
"""Distinct payloads up to this size are made and used in turn: more than the processor's caches hold, so that neither
Timestone nor the raw rows read their source from there, and few enough to be made quickly."""
_SEED = 20260701


@dataclass(frozen=True, slots=True)
class Workload:
    """`count` records of `record_bytes`. Half of each is random, half is not, so that it can be compressed."""

    record_bytes: int
    count: int

    @property
    def size_bytes(self) -> int:
        return self.record_bytes * self.count

    def shortened(self, count: int) -> "Workload":
        """Return the first `count` of the records."""
        return Workload(self.record_bytes, min(self.count, count))

    def chunks(self, size: int) -> Iterator[list[bytes]]:
        """Yield all records in lists of `size`; the last one may be shorter."""
        pool = self._pool(size)
        for start in range(0, self.count, size):
            begin = start % len(pool)
            yield pool[begin : begin + min(size, self.count - start)]

    def joined_chunks(self, size: int) -> list[bytes]:
        """Return the bytes of `chunks`, each chunk in one piece for one system call."""
        joined: dict[tuple[int, int], bytes] = {}
        result = []
        for chunk in self.chunks(size):
            key = (id(chunk[0]), len(chunk))  # the pool lives as long as this object
            if key not in joined:
                joined[key] = b"".join(chunk)
            result.append(joined[key])
        return result

    def _pool(self, size: int) -> list[bytes]:
        """Payloads for chunks of `size`: a multiple of it, so that a chunk is always one slice."""
        limit = max(1, _POOL_BYTES // max(self.record_bytes, 16))
        count = min(self.count + size - 1, max(limit, size)) // size * size
        pool = _pools.get((self.record_bytes, count))
        if pool is None:
            pool = _pools[(self.record_bytes, count)] = _payloads(self.record_bytes, count)
        return pool


_pools: dict[tuple[int, int], list[bytes]] = {}


def _payloads(record_bytes: int, count: int) -> list[bytes]:
    source = random.Random(_SEED)
    half = record_bytes // 2
    filling = b"timestone " * (half // 10 + 1)
    return [source.randbytes(record_bytes - half) + filling[:half] for _ in range(count)]
