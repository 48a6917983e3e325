"""The TOML file of a pipeline, read with the same care as the one of `serve`."""

from pathlib import Path

from timestone_pipeline import PipelineConfig, PipelineError

from ..errors import UsageError
from .schema import build, settings_of
from .sources import read_configuration

DEFAULT = Path("pipeline.toml")


def settings_file(named: Path | None) -> Path | None:
    """The file that was named, else `pipeline.toml` if it is there."""
    return DEFAULT if named is None and DEFAULT.exists() else named


def read_pipeline_config(file: Path | None) -> PipelineConfig:
    """What the `settings_file` says. UsageError names key and file."""
    file = settings_file(file)
    settings = list(settings_of(PipelineConfig))
    try:
        given = read_configuration(settings, options={}, environment={}, file=file)
        config: PipelineConfig = build(PipelineConfig, "", given.values)
    except PipelineError as error:
        raise UsageError(f"{file}: {error}") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    return config
