import asyncio
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl

import timestone
from tests.support.waiting import TIMEOUT_S
from timestone.reading.arrow import SCHEMA
from timestone_bench.flight.bare_server import BareServer, batch_of, serve


def test_bare_server_serves_as_often_as_it_is_asked_and_answers_what_it_is_sent(tmp_path: Path) -> None:
    ports: list[int] = []
    listens = threading.Event()

    async def run() -> None:
        with (
            (tmp_path / "read").open("w+b") as file,
            (tmp_path / "written").open("w+b") as written,
            timestone.open(tmp_path / "store") as store,
        ):
            bare = BareServer(10, 100, file, written, store.log("telemetry"))
            serving.append(asyncio.ensure_future(serve(bare, listening)))
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
            for kind in ("bare", "files", "log"):
                table = client.do_get(fl.Ticket(f"{kind} 3")).read_all()
                assert table.schema == SCHEMA
                own = ["partition", "topic", "headers", "value", "flags"]
                found, wanted = (each.select(own) for each in (table, pa.Table.from_batches([batch] * 3)))
                assert found.equals(wanted)
                sent = batch.select(["topic", "value"])
                writer, answers = client.do_put(fl.FlightDescriptor.for_command(kind), sent.schema)
                writer.write_batch(sent)
                assert answers.read().to_pybytes() == b"{}"
                writer.close()
    finally:
        loops[0].call_soon_threadsafe(serving[0].cancel)
        thread.join(TIMEOUT_S)
