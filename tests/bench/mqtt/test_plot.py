from pathlib import Path

from tests.bench.mqtt.outcomes import COMPARISON
from tests.bench.results import ENVIRONMENT
from timestone_bench.mqtt.plot import write_plot


def test_the_picture_is_written(tmp_path: Path) -> None:
    write_plot(ENVIRONMENT, [COMPARISON, COMPARISON], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
