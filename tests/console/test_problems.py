import pytest

from timestone_console.problems import Problem


def test_problem_is_a_document_of_rfc_9457_with_a_stable_type() -> None:
    found = Problem("not-found", "no such log", start=3).document()
    assert found == {
        "type": "urn:timestone:problem:not-found",
        "title": "Not found",
        "status": 404,
        "detail": "no such log",
        "start": 3,
    }


def test_problem_of_an_unknown_kind_is_an_error_of_the_caller() -> None:
    with pytest.raises(KeyError):
        Problem("nonsense", "")
