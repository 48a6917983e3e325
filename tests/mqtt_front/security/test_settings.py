import dataclasses
from pathlib import Path

import pytest

from mqtt_front.security.settings import JwtSettings, LockoutSettings, SecuritySettings


@pytest.mark.parametrize("kind", [JwtSettings, LockoutSettings, SecuritySettings])
def test_every_setting_says_what_it_is_for(kind: type) -> None:
    for setting in dataclasses.fields(kind):
        assert setting.metadata["help"], setting.name


@pytest.mark.parametrize(
    "settings",
    [
        SecuritySettings(password_file=Path("p")),
        SecuritySettings(jwt=JwtSettings(jwks=Path("k"))),
        SecuritySettings(jwt=JwtSettings(keys=(Path("k"),))),
        SecuritySettings(authenticators=("a",)),
    ],
)
def test_anonymous_clients_come_in_only_while_nobody_could_prove_anything(settings: SecuritySettings) -> None:
    assert SecuritySettings().anonymous_by_default
    assert SecuritySettings(acl_file=Path("a")).anonymous_by_default
    assert settings.authenticates
    assert not settings.anonymous_by_default
    assert dataclasses.replace(settings, allow_anonymous=True).anonymous_by_default
    assert not SecuritySettings(allow_anonymous=False).anonymous_by_default


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="failures is -1; it goes from 0"):
        LockoutSettings(failures=-1)
    with pytest.raises(TypeError, match="leeway_ms is '10 s'; it has to be a whole number"):
        JwtSettings(leeway_ms="10 s")  # type: ignore[arg-type]
