"""Producers: which are known, how many a user may have, and when one is forgotten.

The engine keeps the last number of a producer, an entry for each log (`spool.append_once`). A document beside it
has when the producer was last used, over all logs. One that was silent for too long is forgotten with all its numbers;
after that only a first batch is taken from it, or the action `begin`, because a retry would be appended twice."""

import json
import logging
import threading
from collections.abc import Mapping
from typing import Protocol

from flight_front.calls import Call
from flight_front.errors import CallRefused, Code
from flight_front.settings import FlightSettings
from timestone.disk.json_document import integer, json_object
from timestone.disk.steady_clock import SteadyClock
from timestone.format.names import INBOX_SPACE
from timestone.spool.format import PostingId

SPACE = "flight.producers"
"""Namespace in the catalogue; a key is `<owner>/<producer>`, a value `{"seen_us": …}` by the clock of the store."""
_NOTED_PARTS = 24
"""A use is noted when this part of the expiry has passed since the last note: a write of the catalogue each."""
_LOGGER = logging.getLogger("timestone.flight")


class ProducerDocuments(Protocol):
    """Durable documents: the catalogue of a store, or those of a shard."""

    def get(self, space: str, key: str) -> bytes | None: ...
    def items(self, space: str, broken: list[str] | None = None) -> dict[str, bytes]: ...
    def page(
        self, space: str, after: str, limit: int, text: str = ""
    ) -> tuple[dict[str, bytes], str | None]: ...
    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None: ...


class Producers:
    """Producers of all users of a store, or of a shard. Blocks; any thread."""

    def __init__(self, documents: ProducerDocuments, clock: SteadyClock, settings: FlightSettings) -> None:
        self._documents, self._clock = documents, clock
        self._settings = settings
        self._expiry_us = settings.producer_expiry_ms * 1000
        self._lock = threading.Lock()
        self._seen_us: dict[str, int] | None = None

    @property
    def count(self) -> int:
        """Return how many are known; 0 until the first one is used."""
        return len(self._seen_us or ())

    def use(self, call: Call, posting: PostingId, *, begins: bool = False) -> None:
        """Let a producer append a batch, and note that it is used. begins: it may be new, with any number. Raises
        CallRefused for one that is not known, and for one too many; OSError, CorruptLog."""
        key, now_us = _key(call, posting), self._clock.now_us()
        with self._lock:
            seen_us = self._loaded()
            if now_us - seen_us.get(key, now_us) > self._expiry_us:
                self._forget_expired(now_us)
            if key not in seen_us:
                if not begins and posting.number and not self._has_numbers(posting):
                    raise CallRefused(Code.FAILED_PRECONDITION, self._unknown(posting))
                self._make_room(call, now_us)
            elif now_us - seen_us[key] < self._expiry_us // _NOTED_PARTS:
                return
            document = json.dumps({"seen_us": now_us}).encode()
            self._documents.put_many(SPACE, {key: document})
            seen_us[key] = now_us

    def discard(self, call: Call, posting: PostingId) -> None:
        """Forget the numbers of a producer in one log, and the producer unless it has some in another log."""
        with self._lock:
            documents = self._documents
            documents.put_many(INBOX_SPACE, {posting.key: None})
            if not documents.page(INBOX_SPACE, "", 1, f"/{posting.producer}")[0]:
                documents.put_many(SPACE, {_key(call, posting): None})
                self._loaded().pop(_key(call, posting), None)

    def _has_numbers(self, posting: PostingId) -> bool:
        """Return whether the log has numbers of a producer that an earlier version did not note."""
        return self._documents.get(INBOX_SPACE, posting.key) is not None

    def _unknown(self, posting: PostingId) -> str:
        return (
            f"log {posting.log}: the producer is not known, so batch {posting.number} may be in the log already: it "
            f"was silent for {self._settings.producer_expiry_ms} ms (producer_expiry_ms) or is new; begin with number "
            "0, or call the action `begin` when no batch is to be repeated"
        )

    def _make_room(self, call: Call, now_us: int) -> None:
        """Raise CallRefused if the user has too many producers, after those that expired are forgotten."""
        self._forget_expired(now_us)
        most, own = self._settings.producer_count, f"{call.owner}/"
        if sum(key.startswith(own) for key in self._loaded()) >= most:
            raise CallRefused(
                Code.RESOURCE_EXHAUSTED,
                f"{most} producers of this user are known, limit producer_count: discard those that will not append "
                "again",
            )

    def _forget_expired(self, now_us: int) -> None:
        """Remove producers that were silent for too long, with their numbers."""
        seen_us, documents = self._loaded(), self._documents
        expired = [key for key, at_us in seen_us.items() if now_us - at_us > self._expiry_us]
        if not expired:
            return
        names = {key.partition("/")[2] for key in expired}
        # Their numbers first: a producer without a note is never looked at again.
        documents.put_many(
            INBOX_SPACE, {key: None for key in documents.items(INBOX_SPACE) if key.partition("/")[2] in names}
        )
        documents.put_many(SPACE, dict.fromkeys(expired))
        for key in expired:
            del seen_us[key]

    def _loaded(self) -> dict[str, int]:
        """Return when each was last used; the lock is held."""
        if self._seen_us is None:
            broken: list[str] = []
            found = self._documents.items(SPACE, broken)
            self._seen_us = {}
            for key, value in found.items():
                try:
                    self._seen_us[key] = integer(json_object(value)["seen_us"])
                except (ValueError, TypeError, KeyError) as error:
                    broken.append(f"producer {key!r}: {error!r}")
            for sentence in broken:  # such a producer is as one that was forgotten
                _LOGGER.warning("%s: skipped: %s", SPACE, sentence)
        return self._seen_us


def _key(call: Call, posting: PostingId) -> str:
    return f"{call.owner}/{posting.producer}"
