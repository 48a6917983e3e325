import dataclasses

import pytest

from timestone_access.settings import JwtSettings, LockoutSettings, check_exposure


@pytest.mark.parametrize("kind", [JwtSettings, LockoutSettings])
def test_every_setting_has_a_help_text(kind: type) -> None:
    for setting in dataclasses.fields(kind):
        assert setting.metadata["help"], setting.name


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid failures: expected at least 0, got -1"):
        LockoutSettings(failures=-1)


def test_listener_without_login_is_refused_when_other_machines_reach_it() -> None:
    check_exposure("127.0.0.1:1", is_local=True, remote_allowed=False)
    check_exposure("0.0.0.0:1", is_local=False, remote_allowed=True)
    with pytest.raises(ValueError, match=r"listening on 0\.0\.0\.0:1 without authentication"):
        check_exposure("0.0.0.0:1", is_local=False, remote_allowed=False)
