import json
import re
import urllib.request
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.stores import fill

LINK = re.compile(r"console (http://127.0.0.1:[0-9]+)/login#(\S+)")


@pytest.mark.slow
def test_console_prints_a_link_whose_key_opens_it(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with Running("console", "data", "--listen", "127.0.0.1:0", cwd=tmp_path) as running:
        found = LINK.fullmatch(running.line())
        assert found is not None
        origin, key = found.groups()
        request = urllib.request.Request(
            f"{origin}/api/v1/login", json.dumps({"key": key}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["role"] == "operator"
        code, _, errors = running.stop()
        assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("console", "data", "--listen", "nonsense"), "invalid --listen"),
        (("console", "data", "--listen", "192.0.2.1:1"), "can be read from other machines without a login"),
        (("console", "nowhere", "--listen", "127.0.0.1:0"), "is not a Timestone store"),
    ],
)
def test_console_that_cannot_start_says_why_in_a_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    fill(tmp_path / "data", 1)
    done = command(*words, cwd=tmp_path)
    assert done.returncode != 0 and message in done.stderr and done.stderr.count("\n") == 1
