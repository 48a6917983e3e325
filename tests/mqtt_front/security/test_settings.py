import dataclasses
from pathlib import Path

import pytest

from mqtt_front.security.settings import SecuritySettings
from timestone_access.settings import JwtSettings, LockoutSettings


@pytest.mark.parametrize("kind", [JwtSettings, LockoutSettings, SecuritySettings])
def test_every_setting_has_a_help_text(kind: type) -> None:
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
def test_anonymous_clients_are_allowed_by_default_only_without_logins(settings: SecuritySettings) -> None:
    assert SecuritySettings().anonymous_by_default
    assert SecuritySettings(acl_file=Path("a")).anonymous_by_default
    assert settings.authenticates
    assert not settings.anonymous_by_default
    assert dataclasses.replace(settings, allow_anonymous=True).anonymous_by_default
    assert not SecuritySettings(allow_anonymous=False).anonymous_by_default


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid failures: expected at least 0, got -1"):
        LockoutSettings(failures=-1)
    with pytest.raises(TypeError, match=r"invalid leeway_ms: expected a whole number, got 1\.5"):
        JwtSettings(leeway_ms=1.5)  # type: ignore[arg-type]
