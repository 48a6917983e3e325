import json

import pytest

from timestone_cli.output.json_object import print_json


def test_object_is_printed_whole_with_a_newline_and_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"path": "d\udc80ta", "lag": None, "logs": [{"end_offset": 2**53 + 1, "deep": True}]}
    print_json(found)
    out = capsys.readouterr().out
    assert out.endswith("}\n")
    assert out.isascii(), "a path need not be UTF-8, but the output is"
    assert json.loads(out) == found


def test_what_json_cannot_say_is_an_error() -> None:
    with pytest.raises(TypeError):
        print_json({"payload": b"x"})
