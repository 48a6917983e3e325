import stat
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND
from tests.cli.processes import timestone as command
from tests.support.terminal import OnTerminal
from timestone_access.passwords.password_file import read_password_file


def test_the_first_line_of_standard_input_is_the_password(tmp_path: Path) -> None:
    done = command("passwd", "passwords", "alice", stdin=b"correct horse\nand so on\n", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "passwords: added alice\n", "")
    path = tmp_path / "passwords"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("alice:$argon2id$")
    assert read_password_file(path)["alice"].verify(b"correct horse")


def test_a_password_may_hold_any_bytes(tmp_path: Path) -> None:
    command("passwd", "passwords", "dev", stdin=b"\xff\x00 \t", cwd=tmp_path)
    assert read_password_file(tmp_path / "passwords")["dev"].verify(b"\xff\x00 \t")


def test_a_password_is_changed_and_taken_away(tmp_path: Path) -> None:
    for password, said in ((b"one", "added alice"), (b"two", "changed the password of alice")):
        assert said in command("passwd", "passwords", "alice", stdin=password, cwd=tmp_path).stdout
    assert read_password_file(tmp_path / "passwords")["alice"].verify(b"two")
    assert (
        command("passwd", "passwords", "alice", "--delete", cwd=tmp_path).stdout
        == "passwords: removed alice\n"
    )
    assert read_password_file(tmp_path / "passwords") == {}


def test_what_cannot_be_done_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("alice:old\n")
    cases = [
        (("passwords", "bob", "--delete"), b"", 1, "unknown user 'bob'"),
        (("passwords", "a:b"), b"x", 64, "user 'a:b'"),
        (("passwords", "alice"), b"\n", 1, "the password is empty; nothing was changed"),
        (("missing/passwords", "alice"), b"x", 1, "No such file or directory"),
    ]
    for words, stdin, code, complaint in cases:
        done = command("passwd", *words, stdin=stdin, cwd=tmp_path)
        assert done.returncode == code
        assert complaint in done.stderr and len(done.stderr.splitlines()) == 1
    assert (tmp_path / "passwords").read_text() == "alice:old\n"
    assert not (tmp_path / "passwords.new").exists()


@pytest.mark.slow
def test_ctrl_d_in_place_of_a_password_changes_nothing(tmp_path: Path) -> None:
    with OnTerminal([*COMMAND, "passwd", "passwords", "alice"], tmp_path) as terminal:
        terminal.wait_for("Password: ")
        terminal.type("\4")
        terminal.wait_for("timestone passwd: no password was typed; nothing was changed")
        assert terminal.process.wait(60) == 1
    assert not (tmp_path / "passwords").exists()


@pytest.mark.slow
@pytest.mark.parametrize("second", ["hunter2", "hunter3"])
def test_a_typed_password_is_asked_for_twice_and_never_shown(tmp_path: Path, second: str) -> None:
    with OnTerminal([*COMMAND, "passwd", "passwords", "alice"], tmp_path) as terminal:
        terminal.wait_for("Password: ")
        terminal.type("hunter2\n")
        terminal.wait_for("Once more: ")
        terminal.type(f"{second}\n")
        terminal.wait_for(
            "added alice" if second == "hunter2" else "the passwords differ; nothing was changed"
        )
        assert terminal.process.wait(60) == (0 if second == "hunter2" else 1)
        assert "hunter" not in terminal.shown
    assert (tmp_path / "passwords").exists() is (second == "hunter2")


def test_a_password_for_scram_is_kept_as_scram_needs_it(tmp_path: Path) -> None:
    command("passwd", "passwords", "sensor", "--scram", stdin=b"pencil", cwd=tmp_path)
    assert (tmp_path / "passwords").read_text().startswith("sensor:SCRAM-SHA-256$10000:")
    assert read_password_file(tmp_path / "passwords")["sensor"].verify(b"pencil")
