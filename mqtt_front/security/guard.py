"""The door: decides about each client that wants to come in, without ever keeping the event loop waiting.

Passwords are slow to check on purpose and plug-ins may ask another service, so that happens in threads; how many
clients may wait for it is bounded. Everything here belongs to the event loop's thread, unless it says otherwise.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from mqtt_front.reasons import Reason
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.security.identity import Credentials, Identity, Refusal
from mqtt_front.security.lockout import Lockout
from mqtt_front.security.rules import Permissions
from mqtt_front.security.scram import ScramExchange, ScramRefused
from mqtt_front.security.settings import SecuritySettings
from mqtt_front.security.sources import Sources, read_sources

WAITING_MAX = 1000
"""Clients whose proof is being checked: more would wait longer than they are patient, and each keeps what it sent."""

Decided = Callable[[Identity | Refusal], None]


@dataclass(slots=True)
class GuardCounts:
    """What happened at the door."""

    refused: int = 0
    """Clients that could not prove who they are."""
    locked_out: int = 0
    """Those of them whose logins were not even tried."""


class Guard:
    """Decides who may come in and what they may do."""

    def __init__(
        self, settings: SecuritySettings, loop: Loop, executor: Executor, *, log: logging.Logger
    ) -> None:
        """`executor` runs what takes time. Nobody is let in before `use` was called."""
        self._settings = settings
        self._executor = executor
        self._log = log
        self._mailbox: Mailbox[tuple[Decided, Identity | Refusal]] = Mailbox(loop, self._decided)
        self._lockout = Lockout(settings.lockout)
        self._sources = Sources((), None, None, None)
        self._waiting = 0
        self.counts = GuardCounts()

    def read(self) -> Sources:
        """Read all files again. Reads the disk: not in the event loop's thread. Raises OSError and ValueError."""
        return read_sources(self._settings, self._log)

    def use(self, sources: Sources) -> None:
        """Let `sources` decide from now on."""
        self._sources = sources

    def admit(self, credentials: Credentials, decided: Decided, *, allow_anonymous: bool) -> None:
        """Find out who a client is and call `decided` with it, at once or in a later turn of the loop."""
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
        """A new SCRAM exchange; None when no user could take part in one."""
        passwords = self._sources.passwords
        return None if passwords is None else passwords.scram_exchange()

    def scram_first(self, exchange: ScramExchange, message: bytes, address: str) -> bytes | Refusal:
        """The server's first message for the client's."""
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
        """Who has proved to be whom, and the server's last message for the client's."""
        answer = b""
        # Once more: others may have failed since the first message, in as many exchanges as there are connections.
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
        """What a client may do, with the sources of now; None for everything."""
        return self._sources.permissions(identity, client_id)

    def still_holds(self, identity: Identity) -> bool:
        """May a client that was let in earlier stay, after a reload?"""
        return self._sources.still_holds(identity)

    def _without_check(self, credentials: Credentials, allow_anonymous: bool) -> Identity | Refusal | None:
        """What can be said without looking at a password."""
        if credentials.certificate_name is not None:
            return Identity(credentials.certificate_name, "certificate")
        if credentials.user is None and credentials.password is None:
            if allow_anonymous:
                return Identity(None)
            return Refusal("no user name given", Reason.NOT_AUTHORIZED)
        if not self._sources.authenticators:
            # Nothing to check a name against, so it counts for nothing.
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
        """Has this user to wait there? In any thread."""
        left_s = self._lockout.left_s(user, address)
        if not left_s:
            return None
        message = f"too many failed logins of user {user!r}; tries count again in {left_s:.0f} s"
        return Refusal(message, Reason.BANNED)

    def _check(self, sources: Sources, credentials: Credentials, decided: Decided) -> None:
        """In a thread of the executor."""
        user, address = credentials.user, credentials.address
        # Once more: a thousand guesses may have been let in to wait before the first of them failed.
        outcome: Identity | Refusal | None = self._locked(user, address)
        if outcome is None:
            try:
                outcome = sources.authenticate(credentials)
            except Exception:
                # Somebody else's code may raise anything; whatever it is, nobody comes in by it.
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
                # A fault of ours about one client: it will be too late for its deadline, and the others continue.
                self._log.exception("going on after a login failed")

    def _in_force(self, outcome: Identity | Refusal) -> Identity | Refusal:
        """What was found out with the sources that were in force when it began, with those of now."""
        if isinstance(outcome, Refusal) or self.still_holds(outcome):
            return outcome
        message = f"the login of user {outcome.user!r} was taken back while it was checked"
        return Refusal(message, Reason.NOT_AUTHORIZED)

    def _note(self, user: str | None, address: str, outcome: Identity | Refusal) -> None:
        """Remember a login that was tried. In any thread."""
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
