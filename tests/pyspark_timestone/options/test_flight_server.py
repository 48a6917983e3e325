from pathlib import Path

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.flight_server import FlightServer
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.writing.sink_options import sink_options

GIVEN = {"Flight": "host:8815"}


def test_option_names_the_server_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "ca").write_bytes(b"PEM")
    login = {"flightUser": "u", "flightPasswordFile": str(tmp_path / "password")}
    found = read_options({**GIVEN, **login, "flightCaFile": str(tmp_path / "ca")}, streaming=True).source
    assert found == FlightServer("host:8815", "u", "secret", b"PEM")
    assert "secret" not in repr(found)
    assert sink_options({**GIVEN, "log": "t"}, streaming=False).target == FlightServer("host:8815")


def test_bucket_beside_a_cluster_has_what_is_on_no_disk_of_it() -> None:
    given = {"cluster": "a:1,b:2", "path": "s3://bucket/plant"}
    found = read_options(given, streaming=True)
    assert (found.source, found.tail) == ("s3://bucket/plant", FlightServer("a:1", nodes=("a:1", "b:2")))
    with pytest.raises(InvalidOption, match="unsupported option 'tail' beside cluster"):
        read_options({**given, "tail": "data"}, streaming=True)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"flight": "host"}, "flight"),
        ({"flightCaFile": "/missing"}, "invalid flightCaFile: /missing: No such file"),
        ({"flightUser": "u"}, "invalid flightUser: expected flightPasswordFile beside it"),
        ({"path": "data"}, "unsupported option 'path' beside flight: flight or cluster names the server"),
        ({"PAYLOAD": "json"}, "unsupported option 'payload' beside flight: decode the column value"),
        ({"group": "g", "pinMaxAge": "1h"}, "unsupported option 'pinMaxAge' beside flight: how long"),
        ({"layout": "kafka"}, "unsupported option 'layout' beside flight: select the columns"),
        ({"kafka.bootstrap.servers": "x"}, "unsupported layout kafka beside flight"),
    ],
)
def test_option_that_cannot_be_given_beside_it_says_what_to_do(wrong: dict[str, str], error: str) -> None:
    given = {name: text for name, text in GIVEN.items() if name.lower() not in map(str.lower, wrong)}
    with pytest.raises(InvalidOption, match=error):
        read_options({**given, **wrong}, streaming=False)


def test_login_without_a_server_is_refused() -> None:
    with pytest.raises(InvalidOption, match="invalid flightUser: expected flight beside it"):
        read_options({"path": "data", "flightUser": "u"}, streaming=False)
    with pytest.raises(InvalidOption, match="unsupported option 'path' beside flight"):
        sink_options({**GIVEN, "path": "data", "log": "t"}, streaming=False)
