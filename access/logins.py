"""Authenticators of a front, as of one reading of their files. Immutable: a reload creates a new value."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timestone_access.authenticator import Authenticator, Verifier, load_authenticator
from timestone_access.identity import Credentials, Identity, Refusal
from timestone_access.optional import load
from timestone_access.passwords.password_authenticator import PasswordAuthenticator
from timestone_access.passwords.password_file import is_readable_by_others, read_password_file
from timestone_access.settings import LoginSettings


@dataclass(frozen=True, slots=True)
class Logins:
    """Sources of identities."""

    authenticators: tuple[Authenticator, ...]
    passwords: PasswordAuthenticator | None
    """Also among `authenticators`."""
    tokens: Verifier | None
    """Also among `authenticators`."""

    def authenticate(self, credentials: Credentials) -> Identity | Refusal:
        """Ask the authenticators in order. Blocks as long as they do; thread-safe."""
        for each in self.authenticators:
            answer = each.authenticate(credentials)
            if answer is not None:
                return answer
        if self.passwords is not None:
            self.passwords.take_time(credentials.password)
        return Refusal(f"unknown user {credentials.user!r}")

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a client admitted with earlier sources would be admitted today, as far as that can be
        decided."""
        if identity.proof is None:
            return True
        believer: Verifier | None = {
            "password": self.passwords,
            "scram": self.passwords,
            "token": self.tokens,
        }.get(identity.method)
        return believer is not None and believer.still_holds(identity)


def read_logins(settings: LoginSettings, log: logging.Logger) -> Logins:
    """Read the files that the settings name. Raises OSError, and ValueError with a text that names the file."""
    tokens = None
    if settings.jwt.enabled:
        module = load("timestone_access.token_authenticator", extra="security", what="a token as password")
        tokens = module.read_token_authenticator(settings.jwt, log)
    passwords = None
    if settings.password_file is not None:
        warn_of_readers(settings.password_file, log)
        passwords = PasswordAuthenticator(read_password_file(settings.password_file))
    plug_ins = [
        load_authenticator(name, settings.authenticator_options.get(name, {}))
        for name in settings.authenticators
    ]
    own: Sequence[Authenticator | None] = (tokens, passwords, *plug_ins)
    return Logins(tuple(each for each in own if each is not None), passwords, tokens)


def warn_of_readers(path: Path, log: logging.Logger) -> None:
    """Log a warning if every user of the machine can read a file with secrets."""
    if is_readable_by_others(path):
        log.warning("%s is readable by every user of this machine: run chmod o-r", path)
