import os
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from timestone_access.passwords import password_file
from timestone_access.passwords.password_file import (
    BadPasswordFile,
    UnknownUser,
    is_readable_by_others,
    read_password_file,
    remove_user,
    set_password,
    validate_user,
)

HASH = (
    "$7$101$sKoGy3hML+IZqqYM$bwT4Kaa73mvYTNY6I3AKOcjmqAda1fYIwXup"
    "ocx4aj5zn4h6Q/ZvbrqmkQn2yYb9788sE0rOLNUcaOr9Ff+WxA=="
)

needs_mosquitto_passwd = pytest.mark.skipif(
    shutil.which("mosquitto_passwd") is None,
    reason="mosquitto_passwd is not installed (Debian: apt-get install mosquitto)",
)


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about the file: what a password becomes is the business of `password_hash`."""
    monkeypatch.setattr(password_file, "hash_password", lambda password: HASH)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_file_has_the_user_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    assert set_password(path, "alice", b"secret")
    assert path.read_text() == f"alice:{HASH}\n"
    assert mode(path) == 0o600
    assert read_password_file(path)["alice"].verify(b"secret")
    assert [each.name for each in tmp_path.iterdir()] == ["passwords"]


def test_other_lines_are_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"# devices\nalice:{HASH}\n\n# people\nbob:old\n")
    assert not set_password(path, "bob", b"secret")
    assert set_password(path, "carol", b"secret")
    assert path.read_text() == f"# devices\nalice:{HASH}\n\n# people\nbob:{HASH}\ncarol:{HASH}\n"
    remove_user(path, "alice")
    assert path.read_text() == f"# devices\n\n# people\nbob:{HASH}\ncarol:{HASH}\n"


def test_removing_an_unknown_user_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"alice:{HASH}")
    with pytest.raises(UnknownUser):
        remove_user(path, "bob")
    assert path.read_text() == f"alice:{HASH}"
    assert [each.name for each in tmp_path.iterdir()] == ["passwords"]


def test_changed_file_keeps_its_group_and_excludes_others(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("")
    path.chmod(0o644)
    assert is_readable_by_others(path)
    set_password(path, "alice", b"secret")
    assert mode(path) == 0o640
    assert not is_readable_by_others(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_changed_by_root_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("")
    os.chown(path, 12345, 54321)
    set_password(path, "alice", b"secret")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


def test_symbolic_link_is_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("")
    link.symlink_to(target)
    set_password(link, "alice", b"secret")
    assert link.is_symlink()
    assert target.read_text() == f"alice:{HASH}\n"


def test_concurrent_changes_are_both_kept(tmp_path: Path) -> None:
    users = [f"device-{number}" for number in range(12)]
    with ThreadPoolExecutor(len(users)) as threads:
        list(threads.map(lambda user: set_password(tmp_path / "passwords", user, b"secret"), users))
    assert sorted(read_password_file(tmp_path / "passwords")) == sorted(users)
    assert [path.name for path in tmp_path.iterdir()] == ["passwords"]


def test_killed_change_does_not_block_the_next(tmp_path: Path) -> None:
    (tmp_path / "passwords.new").write_text("alice:half a ha")
    (tmp_path / "passwords.new").chmod(0o644)
    assert set_password(tmp_path / "passwords", "bob", b"secret")
    assert list(read_password_file(tmp_path / "passwords")) == ["bob"]
    assert (tmp_path / "passwords").stat().st_mode & 0o777 == 0o600


def test_link_at_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "passwords.new").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        set_password(tmp_path / "passwords", "alice", b"secret")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("user", ["", " alice", "alice ", "a:b", "#a", "a\nb", "a\x00", "x" * 70_000])
def test_user_name_that_the_file_cannot_represent_is_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(ValueError):
        set_password(tmp_path / "passwords", user, b"secret")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", ["alice", "a b", "ünï", "dev/7", "a#b", "$x"])
def test_other_user_names_are_accepted(tmp_path: Path, user: str) -> None:
    validate_user(user)
    set_password(tmp_path / "passwords", user, b"secret")
    assert list(read_password_file(tmp_path / "passwords")) == [user]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alice", ":1: invalid line: expected user:hash"),
        (f"# x\n:{HASH}", ":2: invalid line: expected user:hash"),
        (f"alice:{HASH}\nalice:{HASH}", ":2: duplicate user 'alice'"),
        ("alice:hunter2", ":1: the password of 'alice': expected a hash of"),
    ],
)
def test_invalid_line_is_reported_by_number_and_not_quoted(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "passwords"
    path.write_text(text)
    with pytest.raises(BadPasswordFile) as error:
        read_password_file(path)
    assert complaint in str(error.value)
    assert "hunter2" not in str(error.value)


def test_file_is_refused_when_it_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_bytes(b"alice:\xff")
    with pytest.raises(BadPasswordFile, match="not UTF-8"):
        read_password_file(path)


def test_file_with_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_bytes(f"alice:{HASH}\r\n".encode())
    assert read_password_file(path)["alice"].verify(b"secret")


@needs_mosquitto_passwd
@pytest.mark.parametrize("kind", ["sha512", "sha512-pbkdf2"])
def test_file_of_mosquitto_passwd_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "passwords"
    for number, (user, password) in enumerate({"alice": "secret", "bob": "gehe:im$"}.items()):
        create = ["-c"] if not number else []
        subprocess.run(["mosquitto_passwd", "-H", kind, *create, "-b", path, user, password], check=True)
    hashes = read_password_file(path)
    assert hashes["alice"].verify(b"secret")
    assert hashes["bob"].verify(b"gehe:im$")
    assert not hashes["alice"].verify(b"gehe:im$")


@needs_mosquitto_passwd
def test_file_can_be_changed_by_mosquitto_passwd_and_timestone(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    set_password(path, "alice", b"secret")
    subprocess.run(["mosquitto_passwd", "-b", path, "bob", "geheim"], check=True)
    set_password(path, "carol", b"secret")
    assert list(read_password_file(path)) == ["alice", "bob", "carol"]
