from pathlib import Path

import pytest

import timestone
from timestone_cli.errors import CommandError
from timestone_cli.input.log_names import open_log


@pytest.mark.parametrize(
    ("name", "partition", "complaint"),
    [
        ("telemtry", 0, "did you mean 'telemetry'?"),
        ("telemetry-0", 0, "say 'telemetry' and --partition 0"),
        ("telemetry", 7, "has no partition 7; it has 0, 1"),
        ("zzz", 0, "it has events, telemetry"),
    ],
)
def test_a_log_that_is_not_there_is_answered_with_what_is(
    tmp_path: Path, name: str, partition: int, complaint: str
) -> None:
    with timestone.open(tmp_path) as store:
        for log in (("telemetry", 0), ("telemetry", 1), ("events", 0)):
            store.log(*log)
    with timestone.view(tmp_path) as view:
        assert open_log(view, "telemetry", 1).partition == 1
        with pytest.raises(CommandError) as refusal:
            open_log(view, name, partition)
    assert complaint in str(refusal.value)


def test_many_logs_are_not_all_listed(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        for number in range(12):
            store.log(f"log{number:02}")
    with timestone.view(tmp_path) as view, pytest.raises(CommandError, match=r"log08, log09 and 2 more$"):
        open_log(view, "zzz", 0)
