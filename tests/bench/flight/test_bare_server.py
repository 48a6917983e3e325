import threading

import pyarrow.flight as fl

from timestone.reading.arrow import SCHEMA
from timestone_bench.flight.bare_server import BareServer, batch_of


def test_bare_server_serves_its_batch_as_often_as_it_is_asked_and_drops_what_it_is_sent() -> None:
    batch = batch_of(10, 100)
    assert batch.schema == SCHEMA
    server = BareServer(batch)
    threading.Thread(target=server.serve, daemon=True).start()
    with fl.connect(f"grpc://127.0.0.1:{server.port}") as client:
        assert client.do_get(fl.Ticket(b"3")).read_all().num_rows == 30
        writer, answers = client.do_put(fl.FlightDescriptor.for_path("x"), SCHEMA)
        writer.write_batch(batch)
        assert answers.read().to_pybytes() == b"{}"
        writer.close()
    server.shutdown()
