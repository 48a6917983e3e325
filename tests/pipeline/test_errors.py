"""All errors have one root, so that a caller can catch them together."""

from timestone_pipeline import errors


def test_every_error_has_one_base() -> None:
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(found) > 4
    assert all(issubclass(one, errors.PipelineError) for one in found)
