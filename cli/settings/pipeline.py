"""Settings of a pipeline from its TOML file, read as the file of `serve` is."""

from pathlib import Path

from timestone_pipeline import PipelineConfig, PipelineError

from ..errors import UsageError
from .schema import build, settings_of
from .sources import read_configuration

DEFAULT = Path("pipeline.toml")


def settings_file(named: Path | None) -> Path | None:
    """Return the file that was named, else `pipeline.toml` if it exists, else None."""
    return DEFAULT if named is None and DEFAULT.exists() else named


def read_pipeline_config(file: Path | None) -> PipelineConfig:
    """Return the settings of the `settings_file`. Raises UsageError that names key and file."""
    file = settings_file(file)
    settings = list(settings_of(PipelineConfig))
    try:
        given = read_configuration(settings, options={}, environment={}, file=file)
        config: PipelineConfig = build(PipelineConfig, "", given.values)
    except PipelineError as error:
        raise UsageError(f"{file}: {error}") from None
    return config
