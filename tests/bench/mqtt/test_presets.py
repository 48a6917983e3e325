from dataclasses import replace

import pytest

from timestone_bench.mqtt.presets import PRESETS


@pytest.mark.parametrize("name", list(PRESETS))
def test_each_scenario_has_a_small_form_of_the_same_kind(name: str) -> None:
    preset = PRESETS[name]
    quick = replace(preset.scenario, **preset.quick)
    assert preset.scenario.name == quick.name == name
    assert (quick.messages, quick.publishers) < (preset.scenario.messages, preset.scenario.publishers + 1)
    assert name in quick.describe()
