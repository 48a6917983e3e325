from collections.abc import Mapping
from pathlib import Path

import pytest

from timestone_access.access_file import BadAclFile, Line, log_rights, read_access_file
from timestone_access.rights import LogRights, Right


def rights(tmp_path: Path, text: str) -> Mapping[str | None, LogRights]:
    path = tmp_path / "acl"
    path.write_text(text)
    return log_rights(read_access_file(path))


def test_lines_carry_the_user_of_their_section(tmp_path: Path) -> None:
    path = tmp_path / "acl"
    path.write_text("topic read a\n# remark\n\nuser alice\ntopic b c\nlog read x\n")
    assert read_access_file(path).lines == (
        Line(1, None, "topic", "read a"),
        Line(5, "alice", "topic", "b c"),
        Line(6, "alice", "log", "read x"),
    )


def test_rights_are_collected_for_each_user_when_sections_repeat(tmp_path: Path) -> None:
    found = rights(
        tmp_path,
        "log read public\nuser a\nlog read telemetry*\nuser b\ngroup g\nuser a\nlog write alarms\ntopic x\n",
    )
    assert found == {
        None: LogRights((("public", Right.READ),)),
        "a": LogRights((("telemetry*", Right.READ), ("alarms", Right.WRITE))),
        "b": LogRights((), ("g",)),
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("log", "acl:1: expected one of read, write, admin, got ''"),
        ("\nlog readwrite x", "acl:2: expected one of read, write, admin, got 'readwrite'"),
        ("log read", "acl:1: expected a name, with `[*]` only at its end, got ''"),
        ("log read a*b", "acl:1: expected a name, with `[*]` only at its end, got 'a[*]b'"),
        ("log read a b", "acl:1: expected a name"),
        ("group", "acl:1: expected a name"),
        ("logs read x", "acl:1: expected one of user, topic, pattern, log, group, got 'logs'"),
        ("user", "acl:1: a user without a name"),
    ],
)
def test_bad_line_is_refused_with_its_number(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(BadAclFile, match=error):
        rights(tmp_path, text)


def test_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acl").write_bytes(b"log \xff")
    with pytest.raises(BadAclFile, match="not UTF-8 at byte 4"):
        read_access_file(tmp_path / "acl")
