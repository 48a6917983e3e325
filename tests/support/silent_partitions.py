"""Other homes of a cluster, without a connection to any."""

from collections.abc import Callable


class SilentPartitions:
    """Part of `timestone.fronts.Partitions`."""

    def connection(self, shard: int) -> object | None:
        return None

    def tell(self, shard: int, data: bytes) -> None:
        raise AssertionError("not connected")

    def listen(self, answered: Callable[[int, bytes], None]) -> None: ...
