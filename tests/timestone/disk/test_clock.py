import time
from pathlib import Path

import pytest

from timestone.disk.clock import Clock


def test_now_is_in_microseconds_since_1970() -> None:
    before = time.time_ns() // 1000
    now = Clock().now_us()
    assert before <= now <= time.time_ns() // 1000


@pytest.mark.parametrize("wrong_ns", [0, -(10**18)])
def test_timestamp_is_never_0_when_the_clock_is_unset(monkeypatch: pytest.MonkeyPatch, wrong_ns: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: wrong_ns)
    assert Clock().now_us() >= 1


def test_boot_id_stays_the_same_until_the_next_boot() -> None:
    first, second = Clock().boot_id(), Clock().boot_id()
    assert len(first) == 16
    assert first == second
    assert any(first)


@pytest.mark.parametrize("text", [None, "", "not hex at all\n"], ids=["missing", "empty", "strange"])
def test_boot_id_is_zeros_when_the_system_has_none(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    def read_text(path: Path, *arguments: object, **options: object) -> str:
        if text is None:
            raise FileNotFoundError(str(path))
        return text

    monkeypatch.setattr(Path, "read_text", read_text)
    assert Clock().boot_id() in (bytes(16), b"")
