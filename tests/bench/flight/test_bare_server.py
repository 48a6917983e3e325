import asyncio
import threading
from pathlib import Path

import pyarrow.flight as fl

from tests.support.waiting import TIMEOUT_S
from timestone.reading.arrow import SCHEMA
from timestone_bench.flight.bare_server import BareServer, batch_of, serve


def test_bare_server_serves_as_often_as_it_is_asked_and_answers_what_it_is_sent(tmp_path: Path) -> None:
    ports: list[int] = []
    listens = threading.Event()

    async def run() -> None:
        with (tmp_path / "payloads").open("w+b") as file:
            serving.append(asyncio.ensure_future(serve(BareServer(10, 100, file, tmp_path), listening)))
            await asyncio.gather(*serving, return_exceptions=True)

    def listening(port: int) -> None:
        ports.append(port)
        loops.append(asyncio.get_running_loop())
        listens.set()

    serving: list[asyncio.Future[None]] = []
    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert listens.wait(TIMEOUT_S)
        batch = batch_of(10, 100)
        with fl.connect(f"grpc://127.0.0.1:{ports[0]}") as client:
            for kind in ("bare", "files"):
                table = client.do_get(fl.Ticket(f"{kind} 3")).read_all()
                assert table.schema == SCHEMA
                assert [each.equals(batch) for each in table.to_batches()] == [True] * 3
                writer, answers = client.do_put(fl.FlightDescriptor.for_command(kind), SCHEMA)
                writer.write_batch(batch)
                assert answers.read().to_pybytes() == b"{}"
                writer.close()
    finally:
        loops[0].call_soon_threadsafe(serving[0].cancel)
        thread.join(TIMEOUT_S)
