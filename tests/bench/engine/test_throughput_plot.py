from pathlib import Path

import pytest

from tests.bench.results import RESULT


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_suffix_decides_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    from timestone_bench.engine.throughput_plot import write_plot

    path = tmp_path / f"plot.{suffix}"
    write_plot(RESULT, path)
    assert path.read_bytes().startswith(magic)
