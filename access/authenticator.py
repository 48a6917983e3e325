"""Interface of authenticators, which plug-ins implement too."""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Protocol

from timestone_access.identity import Credentials, Identity, Refusal

ENTRY_POINT_GROUP = "timestone.mqtt.authenticators"

Answer = Identity | Refusal | None


class Authenticator(Protocol):
    """Authenticator of clients."""

    def authenticate(self, credentials: Credentials) -> Answer:
        """Return the identity of a client, a refusal, or None for a client that the next authenticator has to decide
        about.

        Called in threads, several at a time, and may block; the connection waits for it within the connect timeout. An
        exception is logged and refuses the client."""


class Verifier(Authenticator, Protocol):
    """Authenticator that can check after a reload whether an identity confirmed by its predecessor is still valid."""

    def still_holds(self, identity: Identity) -> bool:
        """Return whether the client would be admitted today, as far as that can be decided without its secret."""


Factory = Callable[[Mapping[str, str]], Authenticator]
"""Object named by an entry point of the group: called with the options of the configuration, at start and at each
reload. Raises ValueError or OSError for invalid options."""


class UnknownAuthenticator(ValueError):
    """The configuration names an authenticator that is not installed."""


def load_authenticator(name: str, options: Mapping[str, str]) -> Authenticator:
    """Return the installed authenticator of that name. Raises UnknownAuthenticator, and the errors of its factory."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        there_are = ", ".join(sorted(found)) or "none"
        raise UnknownAuthenticator(f"unknown authenticator {name!r}: expected one of {there_are}")
    try:
        factory: Factory = found[name].load()
    except (ImportError, AttributeError) as error:
        raise UnknownAuthenticator(
            f"authenticator {name!r} ({found[name].value}) cannot be loaded: {error}"
        ) from error
    return factory(options)
