"""TCP proxy whose connections are cut or held back for a while. For the event loop that it is made in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

_PIECE_BYTES = 1 << 16


class HeldProxy:
    """A way to one server. What is held back comes later, in order, as after a network that was away for a while."""

    def __init__(self, port: int, concerns: Callable[[bytes], bool]) -> None:
        """port: of the server, on loopback. concerns: returns whether a connection is one to cut and hold back until
        the client sends more, by what it sends."""
        self.port, self._concerns = port, concerns
        self._passes = asyncio.Event()
        self._passes.set()
        self.has_held = False
        """Whether something was held back since `hold` was called."""
        self._connections: dict[asyncio.Task[None], bool] = {}
        self._server: asyncio.Server | None = None
        self.answers = b""
        """The last bytes of the server on connections that are concerned."""

    async def start(self) -> str:
        """Listen, and return the address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """End all connections."""
        assert self._server is not None
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hold(self) -> None:
        """Pass nothing on from now on."""
        self._passes.clear()
        self.has_held = False

    def hold_requests(self) -> None:
        """Hold back what clients ask from now on. Answers to what they have asked before are passed on."""
        self._connections = dict.fromkeys(self._connections, False)
        self.hold()

    def cut(self) -> None:
        """End the connections that there are, and hold back what comes on new ones."""
        self.hold()
        for task, is_concerned in self._connections.items():
            if is_concerned:
                task.cancel()

    def release(self) -> None:
        """Pass on what was held back, and all else."""
        self._passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = False
        ways: list[asyncio.Task[None]] = []
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                ways = [
                    asyncio.create_task(self._pump(task, reader, back, is_asking=True)),
                    asyncio.create_task(self._pump(task, there, writer, is_asking=False)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                back.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # the task is the proxy's own: nothing waits for it but `stop`
        finally:
            writer.transport.abort()
            del self._connections[task]

    async def _pump(
        self,
        connection: asyncio.Task[None],
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        is_asking: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(_PIECE_BYTES):
                if is_asking:
                    self._connections[connection] = self._concerns(data)
                if self._connections[connection]:
                    self.has_held = self.has_held or not self._passes.is_set()
                    await self._passes.wait()
                    if not is_asking:
                        self.answers = (self.answers + data)[-_PIECE_BYTES:]
                sink.write(data)
                await sink.drain()


@asynccontextmanager
async def held_proxy(
    port: int = 0, concerns: Callable[[bytes], bool] = lambda first: True
) -> AsyncIterator[tuple[HeldProxy, str]]:
    """Run a proxy in front of a port of loopback for a while, and yield it with its address."""
    proxy = HeldProxy(port, concerns)
    try:
        yield proxy, await proxy.start()
    finally:
        await proxy.stop()
