"""A second front, for tests of `serve`: a TCP listener whose protocol is a line a record, answered by its offset."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


@dataclass(frozen=True, kw_only=True)
class LineSettings:
    """Where to listen, and how to misbehave."""

    listen: str = field(default="127.0.0.1:0", metadata={"help": "HOST:PORT"})
    log: str = "lines"
    stop_delay_ms: int = field(default=0, metadata={"help": "how long stopping takes", "low": 0})
    stop_fails: bool = False

    def __post_init__(self) -> None:
        if self.listen.startswith("0.0.0.0"):
            raise ValueError("listening on 0.0.0.0 is refused")


class LineFront:
    name: ClassVar[str] = "line"

    @classmethod
    def settings(cls) -> type[LineSettings]:
        return LineSettings

    def __init__(self, store: Store, settings: LineSettings, *, log: logging.Logger) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        host, _, port = self._settings.listen.rpartition(":")
        self._server = await asyncio.start_server(self._serve, host, int(port))
        self._log.info("started")

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(self._settings.stop_delay_ms / 1000)
        if self._settings.stop_fails:
            raise RuntimeError("stop failed as configured")

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def describe(self) -> list[str]:
        return [f"line on 127.0.0.1:{self.port}, ack {self._store.config.ack}"]

    def status(self) -> dict[str, Any]:
        running = self._server is not None and self._server.is_serving()
        return {"port": self.port} if running else {}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        log = self._store.log(self._settings.log)
        while line := await reader.readline():
            written: asyncio.Future[Submission] = loop.create_future()

            def done(submission: Submission, written: asyncio.Future[Submission] = written) -> None:
                loop.call_soon_threadsafe(written.set_result, submission)

            log.submit(WriteBatch([line.rstrip(b"\n")]), ack=Ack.SYNCED, done=done)
            writer.write(b"%d\n" % (await written).offsets.start)
        writer.close()
