from pathlib import Path

from tests.support.console_client import Console
from tests.support.stores import LOG, fill


def test_topics_need_a_log(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        console.get("topics", 400)
        console.get("topics/value", 400, log=LOG)
