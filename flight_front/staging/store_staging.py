"""Staging in the folder of a store.

A client calls a part `GROUP/TOKEN`. Its file is in a folder that is named after the user, too, so that no user reaches
the parts of another one."""

from typing import Any

from flight_front.calls import Call
from flight_front.errors import CallRefused, Code
from flight_front.settings import FlightSettings
from flight_front.staging.parts import PostOrder, part_folder, part_place, refused_posting
from flight_front.staging.producers import Producers
from timestone.errors import PostingNotTaken, PostingRefused
from timestone.log import Log
from timestone.spool.consumer import STAGING_NAME
from timestone.spool.format import Frame, Posting, PostingId
from timestone.spool.producer import SpoolProducer
from timestone.store import Store


class StoreStaging:
    """Staging in the folder of a store. Implements `Staging`."""

    def __init__(self, store: Store, settings: FlightSettings) -> None:
        self._store = store
        self._producers = Producers(store.documents, store.steady_clock, settings)

    @property
    def producer_count(self) -> int:
        """See `Staging`."""
        return self._producers.count

    def append_once(self, call: Call, log: Log, posting: PostingId, frame: Frame) -> range | None:
        """See `Staging`."""
        self._producers.use(call, posting)
        return self._store.inbox.append_once(posting, frame)

    def stage(self, call: Call, log: Log, group: str, part: bytes) -> str:
        """See `Staging`."""
        with self._spool().new_part(part_folder(call, group)) as made:
            made.add_encoded(part)
        return f"{group}/{made.name.rpartition('/')[2]}"

    def post(self, call: Call, log: Log, order: PostOrder) -> None:
        """See `Staging`."""
        names = tuple("/".join((STAGING_NAME, *part_place(call, each))) for each in order.parts)
        posting = Posting(*order.posting, names, remembered=True)
        self._producers.use(call, order.posting, begins=order.begins)
        try:
            self._spool().post(posting, timeout_s=order.wait_s)
        except PostingRefused as error:
            raise refused_posting(_shown(self._store, error)) from None
        except PostingNotTaken as error:
            raise CallRefused(Code.UNAVAILABLE, _shown(self._store, error)) from None

    def begin(self, call: Call, posting: PostingId) -> None:
        """See `Staging`."""
        self._producers.use(call, posting, begins=True)

    def discard(self, call: Call, log: Log, values: dict[str, Any]) -> None:
        """See `Staging`."""
        spool = self._spool()
        spool.discard("/".join((STAGING_NAME, *part_place(call, each))) for each in values.get("parts", ()))
        if "group" in values:
            spool.discard_group(part_folder(call, values["group"]))
        if "producer" in values:
            producer = call.producer(values["producer"])
            self._producers.discard(call, PostingId(log.name, log.partition, producer, 0))

    def _spool(self) -> SpoolProducer:
        return SpoolProducer(self._store.path, lambda _: _Owner(self._store))


class _Owner:
    """This process, as the one that appends what waits where no doorbell was installed."""

    def __init__(self, store: Store) -> None:
        store.log_names()  # raises StoreClosed: a posting does not wait for a server that has ended
        store.inbox.take_all()

    def close(self) -> None:
        """Do nothing: the store stays open."""


def _shown(store: Store, error: Exception) -> str:
    """Return the reason without the paths of the server."""
    return str(error).removeprefix(f"{store.path}: ").replace(f"{store.path}/", "")
