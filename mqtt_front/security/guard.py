"""Admission of clients: decides about each without blocking the event loop.

Passwords are slow to check on purpose and plug-ins may ask another service, so both run in threads; the number of
clients that wait for them is bounded. Everything here is for the event-loop thread, unless noted otherwise."""

import logging
from collections.abc import Callable
from concurrent.futures import Executor

from mqtt_front.reasons import Reason
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.security.rules import Permissions
from mqtt_front.security.settings import SecuritySettings
from mqtt_front.security.sources import Sources
from timestone_access.admission import Admission, AdmissionCounts
from timestone_access.identity import Cause, Credentials, Identity, Refusal
from timestone_access.lockout import FailedLogins
from timestone_access.passwords.scram import ScramExchange

Decided = Callable[[Identity | Refusal], None]

REASONS = {
    Cause.CREDENTIALS: Reason.BAD_USER_NAME_OR_PASSWORD,
    Cause.NOT_AUTHORIZED: Reason.NOT_AUTHORIZED,
    Cause.LOCKED_OUT: Reason.BANNED,
    Cause.BUSY: Reason.SERVER_BUSY,
    Cause.UNAVAILABLE: Reason.SERVER_UNAVAILABLE,
    Cause.STOPPING: Reason.SERVER_SHUTTING_DOWN,
}
"""Reason code of each refusal."""


class Guard:
    """Admission and permissions of clients."""

    def __init__(
        self,
        settings: SecuritySettings,
        loop: Loop,
        executor: Executor,
        *,
        log: logging.Logger,
        failed: FailedLogins | None = None,
    ) -> None:
        """executor: runs slow checks. failed: failed logins that other fronts count, too. Every client is refused until
        `use` was called."""
        self._executor = executor
        self._log = log
        self._mailbox: Mailbox[tuple[Decided, Identity | Refusal]] = Mailbox(loop, self._decided)
        self._admission = Admission(Sources((), None, None, None), settings.lockout, log, failed)
        self._waiting = 0
        self.counts = AdmissionCounts()

    def use(self, sources: Sources) -> None:
        """Use `sources` for decisions from now on."""
        self._admission.sources = sources

    def admit(self, credentials: Credentials, decided: Decided, *, allow_anonymous: bool) -> None:
        """Authenticate a client and call `decided` with the result, at once or in a later turn of the loop."""
        at_once = self._admission.at_once(credentials, allow_anonymous=allow_anonymous, waiting=self._waiting)
        if at_once is not None:
            self.counts.add(at_once)
            decided(at_once)
            return
        try:
            self._executor.submit(self._check, self._admission.sources, credentials, decided)
        except RuntimeError:  # the executor is shut down: the front is stopping
            decided(Refusal("the server is stopping", Cause.STOPPING))
        else:
            self._waiting += 1

    def scram_exchange(self) -> ScramExchange | None:
        """Return a new SCRAM exchange; None if no user has a SCRAM hash."""
        return self._admission.scram_exchange()

    def scram_first(self, exchange: ScramExchange, message: bytes, address: str) -> bytes | Refusal:
        """Return the server's first message in answer to the client's."""
        answer = self._admission.scram_first(exchange, message, address)
        self.counts.add(answer)
        return answer

    def scram_final(
        self, exchange: ScramExchange, message: bytes, address: str
    ) -> tuple[Identity, bytes] | Refusal:
        """Return the proven identity and the server's last message in answer to the client's."""
        answer = self._admission.scram_final(exchange, message, address)
        self.counts.add(answer)
        return answer

    def permissions(self, identity: Identity, client_id: str) -> Permissions | None:
        """Return the permissions of a client by the current sources; None for unlimited ones."""
        return self._admission.sources.permissions(identity, client_id)

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a client that was admitted earlier may stay after a reload."""
        return self._admission.sources.still_holds(identity)

    def _check(self, sources: Sources, credentials: Credentials, decided: Decided) -> None:
        """Check credentials. Runs in a thread of the executor."""
        self._mailbox.put((decided, self._admission.check(credentials, sources)))

    def _decided(self, outcomes: list[tuple[Decided, Identity | Refusal]]) -> None:
        for decided, found in outcomes:
            self._waiting -= 1
            outcome = self._admission.in_force(found)
            self.counts.add(outcome)
            try:
                decided(outcome)
            except Exception:
                # An internal error concerns one client, which runs into its timeout; the others continue.
                self._log.exception("internal error after a login attempt")
