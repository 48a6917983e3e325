import asyncio
import socket

import pytest

from flight_front.listening import listening
from flight_front.settings import FlightSettings


def test_address_that_is_taken_is_an_error_that_names_it() -> None:
    async def listen(address: str) -> int:
        server, port = listening(FlightSettings(listen=address).listener, [], lambda: None)
        await server.stop(0)
        return port

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}"):
            asyncio.run(listen(address))
    assert asyncio.run(listen("127.0.0.1:0")) > 0
