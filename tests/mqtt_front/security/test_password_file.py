import os
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqtt_front.security import password_file
from mqtt_front.security.password_file import (
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


def test_a_new_file_holds_the_user_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    assert set_password(path, "alice", b"secret")
    assert path.read_text() == f"alice:{HASH}\n"
    assert mode(path) == 0o600
    assert read_password_file(path)["alice"].verify(b"secret")
    assert [each.name for each in tmp_path.iterdir()] == ["passwords"]


def test_other_lines_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"# devices\nalice:{HASH}\n\n# people\nbob:old\n")
    assert not set_password(path, "bob", b"secret")
    assert set_password(path, "carol", b"secret")
    assert path.read_text() == f"# devices\nalice:{HASH}\n\n# people\nbob:{HASH}\ncarol:{HASH}\n"
    remove_user(path, "alice")
    assert path.read_text() == f"# devices\n\n# people\nbob:{HASH}\ncarol:{HASH}\n"


def test_removing_nobody_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"alice:{HASH}")
    with pytest.raises(UnknownUser):
        remove_user(path, "bob")
    assert path.read_text() == f"alice:{HASH}"
    assert [each.name for each in tmp_path.iterdir()] == ["passwords"]


def test_a_changed_file_keeps_its_group_and_shuts_others_out(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("")
    path.chmod(0o644)
    assert is_readable_by_others(path)
    set_password(path, "alice", b"secret")
    assert mode(path) == 0o640
    assert not is_readable_by_others(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_root_changes_stays_the_servers(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("")
    os.chown(path, 12345, 54321)
    set_password(path, "alice", b"secret")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


def test_a_link_goes_on_leading_to_the_file(tmp_path: Path) -> None:
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("")
    link.symlink_to(target)
    set_password(link, "alice", b"secret")
    assert link.is_symlink()
    assert target.read_text() == f"alice:{HASH}\n"


def test_two_changes_at_the_same_time_do_not_lose_one(tmp_path: Path) -> None:
    users = [f"device-{number}" for number in range(12)]
    with ThreadPoolExecutor(len(users)) as threads:
        list(threads.map(lambda user: set_password(tmp_path / "passwords", user, b"secret"), users))
    assert sorted(read_password_file(tmp_path / "passwords")) == sorted(users)
    assert [path.name for path in tmp_path.iterdir()] == ["passwords"]


def test_a_change_that_was_killed_is_in_nobody_s_way(tmp_path: Path) -> None:
    (tmp_path / "passwords.new").write_text("alice:half a ha")
    (tmp_path / "passwords.new").chmod(0o644)
    assert set_password(tmp_path / "passwords", "bob", b"secret")
    assert list(read_password_file(tmp_path / "passwords")) == ["bob"]
    assert (tmp_path / "passwords").stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "passwords.new").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        set_password(tmp_path / "passwords", "alice", b"secret")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("user", ["", " alice", "alice ", "a:b", "#a", "a\nb", "a\x00", "x" * 70_000])
def test_a_name_that_cannot_stand_in_the_file_is_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(ValueError):
        set_password(tmp_path / "passwords", user, b"secret")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", ["alice", "a b", "ünï", "dev/7", "a#b", "$x"])
def test_other_names_are_fine(tmp_path: Path, user: str) -> None:
    validate_user(user)
    set_password(tmp_path / "passwords", user, b"secret")
    assert list(read_password_file(tmp_path / "passwords")) == [user]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alice", ":1: a line goes user:hash"),
        (f"# x\n:{HASH}", ":2: a line goes user:hash"),
        (f"alice:{HASH}\nalice:{HASH}", ":2: user 'alice' for the second time"),
        ("alice:hunter2", ":1: the password of 'alice': it is none of"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_not_quoted(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "passwords"
    path.write_text(text)
    with pytest.raises(BadPasswordFile) as error:
        read_password_file(path)
    assert complaint in str(error.value)
    assert "hunter2" not in str(error.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_bytes(b"alice:\xff")
    with pytest.raises(BadPasswordFile, match="not UTF-8"):
        read_password_file(path)


def test_a_file_from_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_bytes(f"alice:{HASH}\r\n".encode())
    assert read_password_file(path)["alice"].verify(b"secret")


@needs_mosquitto_passwd
@pytest.mark.parametrize("kind", ["sha512", "sha512-pbkdf2"])
def test_a_file_by_mosquitto_passwd_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "passwords"
    for number, (user, password) in enumerate({"alice": "secret", "bob": "gehe:im$"}.items()):
        create = ["-c"] if not number else []
        subprocess.run(["mosquitto_passwd", "-H", kind, *create, "-b", path, user, password], check=True)
    hashes = read_password_file(path)
    assert hashes["alice"].verify(b"secret")
    assert hashes["bob"].verify(b"gehe:im$")
    assert not hashes["alice"].verify(b"gehe:im$")


@needs_mosquitto_passwd
def test_mosquitto_passwd_and_we_change_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    set_password(path, "alice", b"secret")
    subprocess.run(["mosquitto_passwd", "-b", path, "bob", "geheim"], check=True)
    set_password(path, "carol", b"secret")
    assert list(read_password_file(path)) == ["alice", "bob", "carol"]
