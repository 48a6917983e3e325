from pathlib import Path

from tests.bench.cluster.figures import TAKEN
from tests.bench.results import ENVIRONMENT
from timestone_bench.cluster.plot import write_plot


def test_the_picture_is_written(tmp_path: Path) -> None:
    write_plot(ENVIRONMENT, TAKEN, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
