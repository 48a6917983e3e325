from timestone_console.api.routes import ROUTES
from timestone_console.config import Role


def test_calls_have_names_and_sentences_of_their_own() -> None:
    names = [route.name for route in ROUTES]
    assert len(set(names)) == len(names)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert all(route.summary.endswith(".") for route in ROUTES)


def test_only_login_and_what_it_needs_is_for_everybody() -> None:
    assert {route.path for route in ROUTES if route.role is Role.NONE} == {"/me", "/login", "/logout"}
    assert all(
        route.role is Role.OPERATOR
        for route in ROUTES
        if route.method == "POST" and route.path not in ("/login", "/logout")
    )


def test_calls_with_payloads_need_a_reader() -> None:
    with_payloads = [
        route for route in ROUTES if "record" in route.path or "value" in route.path or "letter" in route.path
    ]
    assert len(with_payloads) == 5 and all(route.role >= Role.READER for route in with_payloads)
