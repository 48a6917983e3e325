import dataclasses
from pathlib import Path

import pytest

from mqtt_front.kernel import loops as mqtt_loops
from timestone.kernel import loops
from timestone_bench.environment import probe_environment


def test_the_machine_is_described(tmp_path: Path) -> None:
    found = probe_environment(tmp_path)
    assert found.filesystem != "unknown file system"
    assert found.cpu_count >= 1
    assert found.memory_bytes > 1 << 26
    assert found.free_bytes > 0
    assert found.fdatasync_median_us > 0
    assert found.versions.keys() == {"timestone", "numpy", "crc32c", "pyarrow"}
    assert list(tmp_path.iterdir()) == []
    head = "\n".join(found.lines())
    assert found.filesystem in head
    assert "CPython" in head or "PyPy" in head
    assert f"{loops.NAME} kernel, {mqtt_loops.NAME} MQTT kernel" in head


def test_what_makes_a_figure_worthless_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "REASON", "")
    monkeypatch.setattr(mqtt_loops, "REASON", "")
    good = dataclasses.replace(
        probe_environment(tmp_path),
        memory_bytes=1000,
        load_average=0.1,
        cpu_count=2,
        filesystem="ext4",
        fdatasync_median_us=900.0,
    )
    assert good.warnings(volume_bytes=200) == []
    assert "10.0% of the memory" not in str(good.warnings(100))
    (small,) = good.warnings(volume_bytes=50)
    assert "5.0% of the memory" in small
    (busy,) = dataclasses.replace(good, load_average=2.5).warnings(200)
    assert "load average is 2.50 on 2 CPUs" in busy
    (memory,) = dataclasses.replace(good, filesystem="tmpfs").warnings(200)
    assert "nothing reaches a disk" in memory
    monkeypatch.setattr(loops, "REASON", "no compiled kernel was built")
    (slow,) = good.warnings(200)
    assert slow == "the per-record work runs in Python, because no compiled kernel was built"
    monkeypatch.setattr(mqtt_loops, "REASON", "TIMESTONE_PURE is set")
    assert good.warnings(200)[1:] == [
        "the work on MQTT packets runs in Python, because TIMESTONE_PURE is set"
    ]
