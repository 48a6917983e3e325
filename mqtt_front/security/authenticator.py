"""The seam to everything that can tell who a client is. Plug-ins implement it, too."""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Protocol

from mqtt_front.security.identity import Credentials, Identity, Refusal

ENTRY_POINT_GROUP = "timestone.mqtt.authenticators"

Answer = Identity | Refusal | None


class Authenticator(Protocol):
    """Finds out who a client is."""

    def authenticate(self, credentials: Credentials) -> Answer:
        """Who it is; or why it is turned away; or None for a client that this authenticator has nothing to say about,
        which is then asked of the next one.

        Called in threads, several at a time, and may block; the connection waits for it within the connect timeout.
        What it raises is logged and turns the client away.
        """


class Verifier(Authenticator, Protocol):
    """An authenticator that can say after a reload whether it still believes what its predecessor believed."""

    def still_holds(self, identity: Identity) -> bool:
        """Would that client be let in today, as far as that can be told without its secret?"""


Factory = Callable[[Mapping[str, str]], Authenticator]
"""What an entry point of the group names: called with the options of the configuration, at start and at each reload.
Raises ValueError or OSError when they cannot be used."""


class UnknownAuthenticator(ValueError):
    """The configuration names an authenticator that is not installed."""


def load_authenticator(name: str, options: Mapping[str, str]) -> Authenticator:
    """The installed authenticator of that name. Raises UnknownAuthenticator, and what its factory raises."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        there_are = ", ".join(sorted(found)) or "none"
        raise UnknownAuthenticator(f"no authenticator {name!r} is installed; there are: {there_are}")
    factory: Factory = found[name].load()
    return factory(options)
