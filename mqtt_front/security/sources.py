"""Sources of decisions about clients, as of one reading of their files. Immutable: a reload creates a new value."""

import logging
from dataclasses import dataclass

from mqtt_front.security.acl_file import AclFile, read_acl_file
from mqtt_front.security.rules import Permissions, RuleSet, fill_in
from mqtt_front.security.settings import SecuritySettings
from timestone_access.identity import Access, Identity, Rule
from timestone_access.logins import Logins, read_logins

_NO_RULES = RuleSet(())


@dataclass(frozen=True, slots=True)
class Sources(Logins):
    """Sources of identities and permissions."""

    acl: AclFile | None
    device_topics: str | None = None
    """Topics to which clients are confined unless they are backends, with the placeholders of patterns."""
    backend_users: frozenset[str] = frozenset()

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


def read_sources(settings: SecuritySettings, log: logging.Logger) -> Sources:
    """Read the files that the settings name. Raises OSError, and ValueError with a text that names the file."""
    logins = read_logins(settings, log)
    acl = None if settings.acl_file is None else read_acl_file(settings.acl_file)
    return Sources(
        logins.authenticators,
        logins.passwords,
        logins.tokens,
        acl,
        settings.device_topics,
        frozenset(settings.backend_users),
    )
