"""Admission of clients: who a client is by its credentials, with the lockout. No event loop and no protocol.

A front asks `at_once` in its own thread and runs `check` in another one: passwords are slow to check on purpose, and
plug-ins may ask another service."""

import logging
from dataclasses import dataclass
from typing import Generic, TypeVar

from timestone_access.identity import Cause, Credentials, Identity, Refusal
from timestone_access.lockout import FailedLogins, Lockout
from timestone_access.logins import Logins
from timestone_access.passwords.scram import ScramExchange, ScramRefused
from timestone_access.settings import LockoutSettings

WAITING_MAX = 1000
"""Maximum number of clients whose credentials are being checked: more would exceed their own timeouts, and each keeps
its request in memory."""

Source = TypeVar("Source", bound=Logins)


@dataclass(slots=True)
class AdmissionCounts:
    """Counters of admissions."""

    refused: int = 0
    """Clients without valid credentials."""
    locked_out: int = 0
    """Those of them that were refused during a lockout, without a check."""

    def add(self, outcome: object) -> None:
        """Count an outcome or an answer, if it is a refusal. One thread only."""
        if isinstance(outcome, Refusal):
            self.refused += 1
            self.locked_out += outcome.cause is Cause.LOCKED_OUT


class Admission(Generic[Source]):
    """Decisions about clients by the sources in force. Thread-safe."""

    def __init__(
        self,
        sources: Source,
        lockout: LockoutSettings,
        log: logging.Logger,
        failed: FailedLogins | None = None,
    ) -> None:
        """failed: failed logins that other fronts count, too."""
        self.sources = sources
        """Replaced whole at a reload."""
        self._settings = lockout
        self._lockout = Lockout(lockout, failed=failed)
        self._log = log

    def at_once(
        self, credentials: Credentials, *, allow_anonymous: bool, waiting: int
    ) -> Identity | Refusal | None:
        """Return what can be decided without checking a secret, or None. waiting: how many checks are under way."""
        if credentials.certificate_name is not None:
            return Identity(credentials.certificate_name, "certificate")
        if credentials.user is None and credentials.password is None:
            if allow_anonymous:
                return Identity(None)
            return Refusal("no user name given", Cause.NOT_AUTHORIZED)
        if not self.sources.authenticators:
            # Without a proof, the name is ignored.
            return (
                Identity(None)
                if allow_anonymous
                else Refusal("no users are configured", Cause.NOT_AUTHORIZED)
            )
        locked = self.locked(credentials.user, credentials.address)
        if locked is not None:
            return locked
        if waiting >= WAITING_MAX:
            return Refusal(f"{WAITING_MAX} logins are being checked", Cause.BUSY)
        return None

    def check(self, credentials: Credentials, sources: Source | None = None) -> Identity | Refusal:
        """Check credentials. Blocks as long as the authenticators do. sources: those in force when the client asked."""
        user, address = credentials.user, credentials.address
        # Checked again: a thousand attempts may have been queued before the first of them failed.
        locked = self.locked(user, address)
        if locked is not None:
            return locked
        try:
            outcome = (sources or self.sources).authenticate(credentials)
        except Exception:
            # A plug-in may raise anything; every error refuses the client.
            self._log.exception("an authenticator failed")
            outcome = Refusal("an authenticator failed", Cause.UNAVAILABLE)
        self._note(user, address, outcome)
        return outcome

    def in_force(self, outcome: Identity | Refusal) -> Identity | Refusal:
        """Convert a result of the sources in force when the check began to those in force now."""
        if isinstance(outcome, Refusal) or self.sources.still_holds(outcome):
            return outcome
        message = f"the login of user {outcome.user!r} was taken back while it was checked"
        return Refusal(message, Cause.NOT_AUTHORIZED)

    def locked(self, user: str | None, address: str) -> Refusal | None:
        """Return a refusal while this user is locked out at the address."""
        left_s = self._lockout.left_s(user, address)
        if not left_s:
            return None
        message = f"too many failed logins of user {user!r}; tries count again in {left_s:.0f} s"
        return Refusal(message, Cause.LOCKED_OUT)

    def scram_exchange(self) -> ScramExchange | None:
        """Return a new SCRAM exchange; None if no user has a SCRAM hash."""
        passwords = self.sources.passwords
        return None if passwords is None else passwords.scram_exchange()

    def scram_first(self, exchange: ScramExchange, message: bytes, address: str) -> bytes | Refusal:
        """Return the server's first message in answer to the client's."""
        try:
            answer = exchange.first(message)
        except ScramRefused as error:
            return Refusal(str(error), Cause.NOT_AUTHORIZED)
        return self.locked(exchange.user, address) or answer

    def scram_final(
        self, exchange: ScramExchange, message: bytes, address: str
    ) -> tuple[Identity, bytes] | Refusal:
        """Return the proven identity and the server's last message in answer to the client's."""
        answer = b""
        # Checked again: others may have failed since the first message, in as many exchanges as there are connections.
        outcome: Identity | Refusal | None = self.locked(exchange.user, address)
        if outcome is None:
            try:
                record, answer = exchange.final(message)
                outcome = Identity(exchange.user, "scram", proof=record.text)
            except ScramRefused as error:
                outcome = Refusal(str(error), Cause.NOT_AUTHORIZED)
            self._note(exchange.user, address, outcome)
        outcome = self.in_force(outcome)
        return outcome if isinstance(outcome, Refusal) else (outcome, answer)

    def _note(self, user: str | None, address: str, outcome: Identity | Refusal) -> None:
        """Count a login attempt."""
        if isinstance(outcome, Identity):
            self._lockout.succeeded(user, address)
        elif outcome.cause is not Cause.UNAVAILABLE and self._lockout.failed(user, address):
            self._log.warning(
                "too many failed logins of user %r from %s: locked for %d ms",
                user, address, self._settings.lock_ms,
            )  # fmt: skip
