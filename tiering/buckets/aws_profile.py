"""Settings for S3 from the environment and the profile files of the AWS tools, as far as obstore does not read them.

obstore reads the environment and the metadata of the machine; it does not read `~/.aws`. Keys of a profile are read
again after ten seconds, so that a tool that renews them in the file is noticed before the old ones are refused for
long."""

import configparser
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ..errors import TieringError

_READ_AGAIN = timedelta(minutes=5, seconds=10)
"""obstore asks for keys again five minutes before they expire."""
_IN_THE_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def s3_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of obstore's S3 store that it does not read itself. Raises TieringError for a profile that
    was asked for and is not there."""
    settings: dict[str, Any] = {}
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        settings["endpoint"] = endpoint
    profile = _profile(environment)
    for name, key in (("region", "region"), ("endpoint", "endpoint_url")):
        in_environment = any(environment.get(f"AWS_{one}") for one in (key.upper(), f"DEFAULT_{key.upper()}"))
        if name not in settings and not in_environment and (value := profile.get(key)):
            settings[name] = value
    if not any(environment.get(name) for name in _IN_THE_ENVIRONMENT) and "aws_access_key_id" in profile:
        settings["credential_provider"] = lambda: _credentials(environment)
    return settings


def _credentials(environment: Mapping[str, str]) -> dict[str, Any]:
    profile = _profile(environment)
    try:
        return {
            "access_key_id": profile["aws_access_key_id"],
            "secret_access_key": profile["aws_secret_access_key"],
            "token": profile.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _READ_AGAIN,
        }
    except KeyError as error:
        raise TieringError(f"the profile {_profile_name(environment)!r} of AWS has no {error}") from None


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the profile from both files; the file of the keys takes precedence."""
    home = Path(environment.get("HOME", "~")).expanduser()
    name = _profile_name(environment)
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = configparser.ConfigParser(interpolation=None, default_section="")
        path = Path(environment.get(variable) or home / ".aws" / file).expanduser()
        try:
            parser.read(path)
        except configparser.Error:
            raise TieringError(f"{path} cannot be parsed") from None  # what it says may hold a key
        if parser.has_section(section):
            found |= dict(parser.items(section))
    if not found and environment.get("AWS_PROFILE"):
        raise TieringError(f"there is no profile {name!r} in the configuration of AWS")
    return found


def _profile_name(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_PROFILE") or "default"
