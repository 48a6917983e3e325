"""Admission of clients: decides about each without blocking the event loop.

Passwords are slow to check on purpose and plug-ins may ask another service, so both run in threads; the number of
clients that wait for them is bounded. Everything here is for the event-loop thread, unless noted otherwise."""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from mqtt_front.reasons import Reason
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.security.identity import Credentials, Identity, Refusal
from mqtt_front.security.lockout import Lockout
from mqtt_front.security.passwords.scram import ScramExchange, ScramRefused
from mqtt_front.security.rules import Permissions
from mqtt_front.security.settings import SecuritySettings
from mqtt_front.security.sources import Sources

WAITING_MAX = 1000
"""Maximum number of clients whose credentials are being checked: more would exceed their own timeouts, and each keeps
its CONNECT in memory."""

Decided = Callable[[Identity | Refusal], None]


@dataclass(slots=True)
class GuardCounts:
    """Counters of admissions."""

    refused: int = 0
    """Clients without valid credentials."""
    locked_out: int = 0
    """Those of them that were refused during a lockout, without a check."""


class Guard:
    """Admission and permissions of clients."""

    def __init__(
        self, settings: SecuritySettings, loop: Loop, executor: Executor, *, log: logging.Logger
    ) -> None:
        """executor: runs slow checks. Every client is refused until `use` was called."""
        self._settings = settings
        self._executor = executor
        self._log = log
        self._mailbox: Mailbox[tuple[Decided, Identity | Refusal]] = Mailbox(loop, self._decided)
        self._lockout = Lockout(settings.lockout)
        self._sources = Sources((), None, None, None)
        self._waiting = 0
        self.counts = GuardCounts()

    def use(self, sources: Sources) -> None:
        """Use `sources` for decisions from now on."""
        self._sources = sources

    def admit(self, credentials: Credentials, decided: Decided, *, allow_anonymous: bool) -> None:
        """Authenticate a client and call `decided` with the result, at once or in a later turn of the loop."""
        at_once = self._without_check(credentials, allow_anonymous)
        if at_once is not None:
            self._count(at_once)
            decided(at_once)
            return
        try:
            self._executor.submit(self._check, self._sources, credentials, decided)
        except RuntimeError:  # the executor is shut down: the front is stopping
            decided(Refusal("the server is stopping", Reason.SERVER_SHUTTING_DOWN))
        else:
            self._waiting += 1

    def scram_exchange(self) -> ScramExchange | None:
        """Return a new SCRAM exchange; None if no user has a SCRAM hash."""
        passwords = self._sources.passwords
        return None if passwords is None else passwords.scram_exchange()

    def scram_first(self, exchange: ScramExchange, message: bytes, address: str) -> bytes | Refusal:
        """Return the server's first message in answer to the client's."""
        try:
            answer = exchange.first(message)
        except ScramRefused as error:
            self.counts.refused += 1
            return Refusal(str(error), Reason.NOT_AUTHORIZED)
        locked = self._locked(exchange.user, address)
        if locked is None:
            return answer
        self._count(locked)
        return locked

    def scram_final(
        self, exchange: ScramExchange, message: bytes, address: str
    ) -> tuple[Identity, bytes] | Refusal:
        """Return the proven identity and the server's last message in answer to the client's."""
        answer = b""
        # Checked again: others may have failed since the first message, in as many exchanges as there are connections.
        outcome: Identity | Refusal | None = self._locked(exchange.user, address)
        if outcome is None:
            try:
                record, answer = exchange.final(message)
                outcome = Identity(exchange.user, "scram", proof=record.text)
            except ScramRefused as error:
                outcome = Refusal(str(error), Reason.NOT_AUTHORIZED)
            self._note(exchange.user, address, outcome)
        outcome = self._in_force(outcome)
        self._count(outcome)
        return outcome if isinstance(outcome, Refusal) else (outcome, answer)

    def permissions(self, identity: Identity, client_id: str) -> Permissions | None:
        """Return the permissions of a client by the current sources; None for unlimited ones."""
        return self._sources.permissions(identity, client_id)

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a client that was admitted earlier may stay after a reload."""
        return self._sources.still_holds(identity)

    def _without_check(self, credentials: Credentials, allow_anonymous: bool) -> Identity | Refusal | None:
        """Return what can be decided without checking a password."""
        if credentials.certificate_name is not None:
            return Identity(credentials.certificate_name, "certificate")
        if credentials.user is None and credentials.password is None:
            if allow_anonymous:
                return Identity(None)
            return Refusal("no user name given", Reason.NOT_AUTHORIZED)
        if not self._sources.authenticators:
            # Without a proof, the name is ignored.
            return (
                Identity(None)
                if allow_anonymous
                else Refusal("no users are configured", Reason.NOT_AUTHORIZED)
            )
        locked = self._locked(credentials.user, credentials.address)
        if locked is not None:
            return locked
        if self._waiting >= WAITING_MAX:
            return Refusal(f"{WAITING_MAX} logins are being checked", Reason.SERVER_BUSY)
        return None

    def _locked(self, user: str | None, address: str) -> Refusal | None:
        """Return a refusal while this user is locked out at the address. Thread-safe."""
        left_s = self._lockout.left_s(user, address)
        if not left_s:
            return None
        message = f"too many failed logins of user {user!r}; tries count again in {left_s:.0f} s"
        return Refusal(message, Reason.BANNED)

    def _check(self, sources: Sources, credentials: Credentials, decided: Decided) -> None:
        """Check credentials. Runs in a thread of the executor."""
        user, address = credentials.user, credentials.address
        # Checked again: a thousand attempts may have been queued before the first of them failed.
        outcome: Identity | Refusal | None = self._locked(user, address)
        if outcome is None:
            try:
                outcome = sources.authenticate(credentials)
            except Exception:
                # A plug-in may raise anything; every error refuses the client.
                self._log.exception("an authenticator failed")
                outcome = Refusal("an authenticator failed", Reason.SERVER_UNAVAILABLE)
            self._note(user, address, outcome)
        self._mailbox.put((decided, outcome))

    def _decided(self, outcomes: list[tuple[Decided, Identity | Refusal]]) -> None:
        for decided, found in outcomes:
            self._waiting -= 1
            outcome = self._in_force(found)
            self._count(outcome)
            try:
                decided(outcome)
            except Exception:
                # An internal error concerns one client, which runs into its timeout; the others continue.
                self._log.exception("internal error after a login attempt")

    def _in_force(self, outcome: Identity | Refusal) -> Identity | Refusal:
        """Convert a result of the sources in force when the check began to those in force now."""
        if isinstance(outcome, Refusal) or self.still_holds(outcome):
            return outcome
        message = f"the login of user {outcome.user!r} was taken back while it was checked"
        return Refusal(message, Reason.NOT_AUTHORIZED)

    def _note(self, user: str | None, address: str, outcome: Identity | Refusal) -> None:
        """Count a login attempt. Thread-safe."""
        if isinstance(outcome, Identity):
            self._lockout.succeeded(user, address)
        elif outcome.reason is not Reason.SERVER_UNAVAILABLE and self._lockout.failed(user, address):
            self._log.warning(
                "too many failed logins of user %r from %s: locked for %d ms",
                user, address, self._settings.lockout.lock_ms,
            )  # fmt: skip

    def _count(self, outcome: Identity | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self.counts.refused += 1
            self.counts.locked_out += outcome.reason is Reason.BANNED
