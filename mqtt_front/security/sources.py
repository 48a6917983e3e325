"""Sources of decisions about clients, as of one reading of their files. Immutable: a reload creates a new value."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mqtt_front.runtime.optional import load
from mqtt_front.security.acl_file import AclFile, read_acl_file
from mqtt_front.security.authenticator import Authenticator, Verifier, load_authenticator
from mqtt_front.security.identity import Credentials, Identity, Refusal
from mqtt_front.security.passwords.password_authenticator import PasswordAuthenticator
from mqtt_front.security.passwords.password_file import is_readable_by_others, read_password_file
from mqtt_front.security.rules import Access, Permissions, Rule, RuleSet, fill_in
from mqtt_front.security.settings import SecuritySettings

_NO_RULES = RuleSet(())


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of identities and permissions."""

    authenticators: tuple[Authenticator, ...]
    passwords: PasswordAuthenticator | None
    """Also among `authenticators`."""
    tokens: Verifier | None
    """Also among `authenticators`."""
    acl: AclFile | None
    device_topics: str | None = None
    """Topics to which clients are confined unless they are backends, with the placeholders of patterns."""
    backend_users: frozenset[str] = frozenset()

    def authenticate(self, credentials: Credentials) -> Identity | Refusal:
        """Ask the authenticators in order. Blocks as long as they do; thread-safe."""
        for each in self.authenticators:
            answer = each.authenticate(credentials)
            if answer is not None:
                return answer
        if self.passwords is not None:
            self.passwords.take_time(credentials.password)
        return Refusal(f"unknown user {credentials.user!r}")

    def permissions(self, identity: Identity, client_id: str) -> Permissions | None:
        """Return the permissions of a client; None for unlimited ones."""
        scope = None
        if self.device_topics is not None and identity.user not in self.backend_users:
            own_topics = Rule(self.device_topics, Access.READ_WRITE)
            scope = RuleSet(fill_in([own_topics], identity.user, client_id))
        if identity.rules is not None:
            return Permissions([RuleSet(fill_in(identity.rules, identity.user, client_id))], scope)
        if self.acl is None:
            return None if scope is None else Permissions([scope])
        own = self.acl.users.get(identity.user, _NO_RULES)
        return Permissions([own, RuleSet(fill_in(self.acl.patterns, identity.user, client_id))], scope)

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


def read_sources(settings: SecuritySettings, log: logging.Logger) -> Sources:
    """Read the files that the settings name. Raises OSError, and ValueError with a text that names the file."""
    tokens = None
    if settings.jwt.enabled:
        module = load("mqtt_front.security.token_authenticator", extra="security", what="a token as password")
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
    acl = None if settings.acl_file is None else read_acl_file(settings.acl_file)
    return Sources(
        tuple(each for each in own if each is not None),
        passwords,
        tokens,
        acl,
        settings.device_topics,
        frozenset(settings.backend_users),
    )


def warn_of_readers(path: Path, log: logging.Logger) -> None:
    """Log a warning if every user of the machine can read a file with secrets."""
    if is_readable_by_others(path):
        log.warning("%s is readable by every user of this machine: run chmod o-r", path)
