from pathlib import Path

import pytest

from mqtt_front.security.acl_file import AclFile, read_acl_file
from timestone_access.access_file import BadAclFile
from timestone_access.identity import Access, Rule

MOSQUITTOS_EXAMPLE = """\
# This affects access control for clients with no username.
topic read $SYS/#

# This only affects clients with username "roger".
user roger
topic foo/bar

# This affects all clients.
pattern write $SYS/broker/connection/%c/state
"""


def parsed(tmp_path: Path, text: str) -> AclFile:
    path = tmp_path / "acl"
    path.write_bytes(text.encode())
    return read_acl_file(path)


def test_mosquittos_example_file_is_parsed(tmp_path: Path) -> None:
    acl = parsed(tmp_path, MOSQUITTOS_EXAMPLE)
    assert acl.users.keys() == {None, "roger"}
    assert acl.users[None].judge("$SYS/broker/uptime", Access.READ)
    assert acl.users[None].judge("$SYS/broker/uptime", Access.WRITE) is None
    assert acl.users["roger"].judge("foo/bar", Access.READ)
    assert acl.users["roger"].judge("foo/bar", Access.WRITE)
    assert acl.patterns == (Rule("$SYS/broker/connection/%c/state", Access.WRITE),)


@pytest.mark.parametrize("word", ["read", "write", "readwrite", "deny"])
def test_each_access_word_is_parsed(tmp_path: Path, word: str) -> None:
    rules = parsed(tmp_path, f"topic {word} a/#\n").users[None]
    for wanted, words in [(Access.READ, ("read", "readwrite")), (Access.WRITE, ("write", "readwrite"))]:
        assert rules.judge("a/b", wanted) is (False if word == "deny" else True if word in words else None)


def test_blanks_empty_lines_and_line_ends_are_ignored(tmp_path: Path) -> None:
    acl = parsed(tmp_path, "\r\n  # remark\r\n  user   alice smith  \r\n\r\n topic   read   a b/c  \r\n")
    assert acl.users["alice smith"].judge("a b/c", Access.READ)


def test_user_may_have_several_sections(tmp_path: Path) -> None:
    acl = parsed(tmp_path, "user a\ntopic x\nuser b\ntopic y\nuser a\ntopic z\n")
    assert acl.users["a"].judge("x", Access.READ)
    assert acl.users["a"].judge("z", Access.READ)
    assert acl.users["a"].judge("y", Access.READ) is None


def test_empty_file_allows_nothing(tmp_path: Path) -> None:
    acl = parsed(tmp_path, "")
    assert (acl.users, acl.patterns) == ({}, ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("topic", ":1: "),
        ("user", ":1: a user without a name"),
        ("\n\ntopic reed a", ":3: expected one of read, write, readwrite, deny, got 'reed'"),
        ("topic read a#", ":1: topic filter 'a#'"),
        ("topic read a/#/b", ":1: topic filter"),
        ("pattern %c+/x", ":1: topic filter"),
        ("topics read a", ":1: expected one of user, topic, pattern, log, group, got 'topics'"),
    ],
)
def test_invalid_line_is_reported_with_its_number(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadAclFile) as error:
        parsed(tmp_path, text)
    assert complaint in str(error.value)


def test_file_is_refused_when_it_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "acl").write_bytes(b"topic \xff")
    with pytest.raises(BadAclFile, match="not UTF-8"):
        read_acl_file(tmp_path / "acl")
