import pytest

from timestone_console.api.route import Route
from timestone_console.api.routes import ROUTES
from timestone_console.problems import Problem


def of(path: str, method: str = "GET") -> Route:
    return next(one for one in ROUTES if (one.path, one.method) == (path, method))


def test_query_is_read_by_its_types() -> None:
    records = of("/records")
    query = records.parse(
        [("log", "a"), ("filter", "b/#"), ("filter", "c"), ("limit", "7"), ("from", "x")], {}
    )
    assert (query.log, query.filter, query.limit, query.from_) == ("a", ("b/#", "c"), 7, "x")  # type: ignore[attr-defined]
    one = of("/records/{log}/{partition}/{offset}").parse([], {"log": "a", "partition": "1", "offset": "2"})
    assert (one.partition, one.offset) == (1, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("log", "a"), ("log", "b")],
        [("log", "a"), ("limit", "0")],
        [("log", "a"), ("limit", "1e3")],
        [("log", "a"), ("order", "up")],
        [("log", "a"), ("from_", "1")],
        [("log", "x" * 201)],
        [("log", "a"), *[("filter", "b")] * 21],
    ],
)
def test_wrong_query_is_a_problem(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(Problem):
        of("/records").parse(pairs, {})


def test_field_of_the_path_is_not_a_parameter() -> None:
    with pytest.raises(Problem, match="unknown parameter 'log'"):
        of("/logs/{log}").parse([("log", "b")], {"log": "a"})


@pytest.mark.parametrize("body", [b"", b"[", b"1", b'{"action":"fly"}', b"[" * 100_000, b'{"action":1}'])
def test_wrong_body_is_a_problem(body: bytes) -> None:
    with pytest.raises(Problem):
        of("/actions", "POST").parse_body(body)
