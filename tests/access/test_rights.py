from timestone_access.rights import ALL_RIGHTS, NO_RIGHTS, LogRights, Right


def test_right_holds_for_a_name_when_it_is_granted_for_that_name() -> None:
    rights = LogRights((("telemetry", Right.READ),), ("dash",))
    assert rights.may(Right.READ, "telemetry")
    assert not rights.may(Right.READ, "telemetry2")
    assert not rights.may(Right.WRITE, "telemetry")
    assert rights.may_use("dash") and not rights.may_use("dashboard")


def test_trailing_star_stands_for_any_rest_when_names_share_a_beginning() -> None:
    rights = LogRights((("site.*", Right.WRITE),), ("dash*",))
    assert rights.may(Right.WRITE, "site.a") and rights.may(Right.WRITE, "site.")
    assert not rights.may(Right.WRITE, "site")
    assert rights.may_use("dashboard")


def test_no_right_includes_another_one_when_it_is_granted_alone() -> None:
    rights = LogRights((("*", Right.ADMIN),))
    assert rights.may(Right.ADMIN, "any")
    assert not rights.may(Right.READ, "any") and not rights.may(Right.WRITE, "any")


def test_all_rights_allow_everything_and_no_rights_nothing() -> None:
    assert all(ALL_RIGHTS.may(right, "any") for right in Right) and ALL_RIGHTS.may_use("any")
    assert not any(NO_RIGHTS.may(right, "any") for right in Right) and not NO_RIGHTS.may_use("any")
