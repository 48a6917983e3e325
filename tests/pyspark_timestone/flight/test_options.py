from pathlib import Path

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.flight.options import (
    INSTEAD,
    OPTIONS,
    FlightOptions,
    flight_options,
    is_remote,
    refuse_write,
)
from pyspark_timestone.options.read_options import OPTIONS as OPTIONS_OF_FILES

GIVEN = {"flight": "host:8815", "subscribe": "a, b"}


def test_option_decides_that_a_server_is_read() -> None:
    assert is_remote({"Flight": "host:1"})
    assert not is_remote({"path": "data"})


def test_options_have_defaults_and_files_are_read(tmp_path: Path) -> None:
    assert flight_options(GIVEN, streaming=True) == FlightOptions("host:8815", ("a", "b"))
    (tmp_path / "password").write_text("secret\n")
    found = flight_options(
        {**GIVEN, "flightUser": "u", "flightPasswordFile": str(tmp_path / "password")}, streaming=False
    )
    assert (found.user, found.password) == ("u", "secret")
    assert "secret" not in repr(found)
    offsets = flight_options({**GIVEN, "startingOffsets": '{"a": 1, "b": 2}'}, streaming=False)
    assert offsets.starting == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"flight": "host"}, "flight"),
        ({"subscribe": " "}, "invalid subscribe"),
        ({"subscribe": "a/b"}, "cannot name a log"),
        ({"topics": "a/#/b"}, "topic filter"),
        ({"startingOffsets": "now"}, "invalid startingOffsets: expected earliest or latest"),
        ({"endingOffsets": '{"a": 1}'}, "invalid endingOffsets"),
        ({"columns": "payload"}, "invalid columns"),
        ({"flightCaFile": "/missing"}, "invalid flightCaFile: /missing: No such file"),
        ({"path": "data"}, "unsupported option 'path' beside flight: flight names the server"),
        ({"PAYLOAD": "json"}, "unsupported option 'PAYLOAD' beside flight: decode the column value"),
        ({"group": "g"}, "unsupported option 'group' beside flight: the checkpoint"),
        ({"colums": "offset"}, "colums"),
    ],
)
def test_invalid_option_is_named(wrong: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidOption, match=error):
        flight_options({**GIVEN, **wrong}, streaming=False)


def test_end_is_refused_for_a_stream() -> None:
    with pytest.raises(InvalidOption, match="endingOffsets is for batches"):
        flight_options({**GIVEN, "endingOffsets": "latest"}, streaming=True)


def test_every_option_of_a_read_of_files_is_served_or_says_what_to_do_instead() -> None:
    assert set(OPTIONS_OF_FILES) - set(OPTIONS) == set(INSTEAD)


def test_write_is_refused_in_one_line() -> None:
    refuse_write({"path": "data", "log": "t"})
    with pytest.raises(
        InvalidOption, match=r"unsupported option 'flight' for a write: append with a client"
    ) as refused:
        refuse_write({"flight": "host:8815", "log": "t"})
    assert "\n" not in str(refused.value)
