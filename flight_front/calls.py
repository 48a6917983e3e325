"""Calls: who makes one, what it may do, and the limits over all of them. Event-loop thread of the front only, but for
the checks of secrets, which run in threads."""

import asyncio
import base64
import binascii
import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from logging import Logger
from typing import Any, TypeVar, cast

from flight_front.errors import CallRefused, ClientGone, Code, InvalidRequest
from flight_front.settings import FlightSettings
from timestone_access.access_file import log_rights, read_access_file
from timestone_access.admission import Admission, AdmissionCounts
from timestone_access.identity import Cause, Credentials, Identity, Refusal
from timestone_access.lockout import FailedLogins
from timestone_access.logins import Logins, read_logins
from timestone_access.rights import ALL_RIGHTS, NO_RIGHTS, LogRights, Right
from timestone_access.throttled_log import ThrottledLog
from timestone_access.token_bucket import TokenBucket

_TOKENS_MAX = 10_000
_USERS_MAX = 10_000
_TICK_S = 0.1
_SPOOL_THREADS = 2
_PRODUCER_MOST = 180
"""Characters of a producer's name: one that is stored also names the user."""
_CODES = {
    Cause.BUSY: Code.RESOURCE_EXHAUSTED,
    Cause.UNAVAILABLE: Code.UNAVAILABLE,
    Cause.STOPPING: Code.UNAVAILABLE,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AccessSources:
    """Logins and rights, as of one reading of their files."""

    logins: Logins
    rights: Mapping[str | None, LogRights] | None
    """None where no login is configured: everything is allowed."""


def read_access(settings: FlightSettings, log: Logger) -> AccessSources:
    """Read the files that the settings name. Raises ValueError, also for a file that cannot be read."""
    try:
        logins = read_logins(settings, log)
        file = None if settings.acl_file is None else read_access_file(settings.acl_file)
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from error
    granted: Mapping[str | None, LogRights] = {} if file is None else log_rights(file)
    return AccessSources(logins, granted if settings.knows_users or file is not None else None)


@dataclass(slots=True)
class CallCounts:
    """Counters of calls."""

    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """By status."""
    limited: Counter[str] = field(default_factory=Counter)
    """By the setting that refused them."""
    records_read: int = 0
    records_appended: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    idle_ended: int = 0


@dataclass(slots=True)
class Call:
    """One call: its client, and the stream of messages."""

    context: Any
    identity: Identity
    rights: LogRights
    log: str | None = None
    """Log that the call concerns, once known."""
    partition: int = 0

    async def write(self, message: bytes) -> None:
        """Send a message, when HTTP/2 has room for it. Raises ClientGone."""
        try:
            await self.context.write(message)
        except Exception as error:
            raise ClientGone from error

    @property
    def owner(self) -> str:
        """Return what stands for the user in stored names, so that no user reaches what another one has named."""
        return hashlib.blake2b((self.identity.user or "").encode(), digest_size=8).hexdigest()

    def producer(self, name: object) -> str:
        """Return the name under which the numbers of a producer are stored. Each user that logs in has numbers of its
        own, so that none can use up those of another one. Raises InvalidRequest."""
        if not isinstance(name, str) or not 1 <= len(name) <= _PRODUCER_MOST or not name.isprintable():
            raise InvalidRequest(
                f"invalid producer: expected 1 to {_PRODUCER_MOST} printable characters, got {name!r:.200}"
            )
        return name if self.identity.user is None else f"{self.owner}-{name}"

    def check(self, right: Right, log: str) -> None:
        """Raise CallRefused unless the user has a right on a log."""
        if not self.rights.may(right, log):
            raise CallRefused(
                Code.PERMISSION_DENIED,
                f"user {self.identity.user!r} has no right to {right.value} log {log!r}",
            )

    def check_group(self, name: str) -> None:
        """Raise CallRefused unless the user may commit as a reader of this name."""
        if not self.rights.may_use(name):
            raise CallRefused(
                Code.PERMISSION_DENIED, f"user {self.identity.user!r} may not commit as reader {name!r}"
            )


class Calls:
    """Admission of calls, and limits over them."""

    def __init__(
        self,
        settings: FlightSettings,
        sources: AccessSources,
        executor: Executor,
        log: Logger,
        failed: FailedLogins | None = None,
    ) -> None:
        """executor: runs checks of secrets. failed: failed logins that other fronts count, too."""
        self._settings = settings
        self._executor = executor
        self._spool_executor = ThreadPoolExecutor(_SPOOL_THREADS, "flight-spool")
        self._complaints = ThrottledLog(log)
        self._admission = Admission(sources.logins, settings.lockout, log, failed)
        self._rights = sources.rights
        self._waiting = 0
        self._tokens: OrderedDict[bytes, Identity] = OrderedDict()
        """Identities of the tokens given by Handshake, as digests. They expire with the token, so that one that is made
        with another one lives no longer."""
        self._rates: OrderedDict[str, TokenBucket] = OrderedDict()
        self._open: Counter[str] = Counter()
        self.stopping = False
        self._stop_events: set[asyncio.Event] = set()
        self.counts = CallCounts()
        self.logins = AdmissionCounts()
        self.open_count = 0

    def use(self, sources: AccessSources) -> None:
        """Use other logins and rights from now on; tokens whose login does not hold any more end."""
        self._admission.sources = sources.logins
        self._rights = sources.rights
        for digest, identity in list(self._tokens.items()):
            if not sources.logins.still_holds(identity):
                del self._tokens[digest]

    @asynccontextmanager
    async def admit(self, context: Any, method: str) -> AsyncIterator[Call]:
        """Let a call in within the limits, and count it until it ends. Raises CallRefused."""
        self.counts.calls[method] += 1
        if self.open_count >= self._settings.stream_count:
            raise self._limited("stream_count", f"{self._settings.stream_count} calls are under way")
        self.open_count += 1
        try:
            identity = await self._identity(context)
            key = identity.user or f"anonymous {_address(context)}"
            self._spend(key)
            if self._open[key] >= self._settings.user_stream_count:
                message = f"{self._settings.user_stream_count} calls of this user are under way"
                raise self._limited("user_stream_count", message)
            self._open[key] += 1
            try:
                yield Call(context, identity, self._rights_of(identity))
            finally:
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]
        finally:
            self.open_count -= 1

    @contextmanager
    def woken_at_stop(self, event: asyncio.Event) -> Iterator[None]:
        """Set the event when the server stops, within the block."""
        self._stop_events.add(event)
        try:
            yield
        finally:
            self._stop_events.discard(event)

    def stop(self) -> None:
        """Wake all calls that wait for records or for their client, and let no other begin."""
        self.stopping = True
        for event in self._stop_events:
            event.set()

    def close(self) -> None:
        """End the threads of the spool when they have nothing to do. The calls have ended."""
        self._spool_executor.shutdown(wait=False, cancel_futures=True)

    def check_running(self) -> None:
        """Raise CallRefused once the server stops."""
        if self.stopping:
            raise CallRefused(Code.UNAVAILABLE, "the server stops")

    def token(self, identity: Identity) -> str:
        """Return a new token for a user that has logged in."""
        made = secrets.token_urlsafe(32)
        while len(self._tokens) >= _TOKENS_MAX:
            self._tokens.popitem(last=False)
        end_s = time.time() + self._settings.login_ms / 1000
        if identity.expires_s is not None:
            end_s = min(end_s, identity.expires_s)
        self._tokens[_digest(made)] = replace(identity, expires_s=end_s)
        return made

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that may block in a thread of the front."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def in_spool_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """The same for a function that waits for the spool. It has threads of its own: a posting may wait for minutes,
        also when its call has ended."""
        return await asyncio.get_running_loop().run_in_executor(self._spool_executor, function, *arguments)

    def _rights_of(self, identity: Identity) -> LogRights:
        return ALL_RIGHTS if self._rights is None else self._rights.get(identity.user, NO_RIGHTS)

    async def _identity(self, context: Any) -> Identity:
        credentials = self._credentials(context)
        if isinstance(credentials, Identity):
            return credentials
        outcome = self._admission.at_once(
            credentials, allow_anonymous=not self._settings.knows_users, waiting=self._waiting
        )
        if outcome is None:
            self._waiting += 1
            try:
                outcome = await self.in_thread(self._admission.check, credentials)
            finally:
                self._waiting -= 1
            outcome = self._admission.in_force(outcome)
        self.logins.add(outcome)
        if isinstance(outcome, Refusal):
            self._complaints.warn("login", f"refused a call from {credentials.address}: {outcome.message}")
            # The cause alone, so that a client cannot tell an unknown user from a wrong password.
            raise CallRefused(_CODES.get(outcome.cause, Code.UNAUTHENTICATED), outcome.cause.value)
        if outcome.expires_s is not None and outcome.expires_s <= time.time():
            raise CallRefused(Code.UNAUTHENTICATED, "the token has expired")
        return outcome

    def _credentials(self, context: Any) -> Credentials | Identity:
        address = _address(context)
        name = certificate_user(context.auth_context(), self._settings.user_from)
        if name is not None:
            return Credentials(address=address, certificate_name=name)
        header = next((value for key, value in context.invocation_metadata() if key == "authorization"), None)
        if header is None:
            return Credentials(address=address)
        text = header.decode("latin-1") if isinstance(header, bytes) else header
        kind, _, secret = text.partition(" ")
        if kind.lower() == "bearer":
            known = self._tokens.get(_digest(secret))
            if known is not None and cast("float", known.expires_s) > time.time():
                return known
            return Credentials(user="", password=secret.encode(), address=address)
        if kind.lower() != "basic":
            raise CallRefused(Code.UNAUTHENTICATED, "expected authorization: Basic or Bearer")
        try:
            user, colon, password = base64.b64decode(secret, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise CallRefused(
                Code.UNAUTHENTICATED, "invalid authorization: expected Basic in base64"
            ) from None
        return Credentials(user=user, password=password.encode() if colon else None, address=address)

    def _spend(self, key: str) -> None:
        limit = self._settings.calls_per_s
        if not limit:
            return
        now = int(time.monotonic() / _TICK_S)
        rate = self._rates.get(key)
        if rate is None:
            if len(self._rates) >= _USERS_MAX:
                self._rates.popitem(last=False)
            rate = self._rates[key] = TokenBucket(limit, now, _TICK_S)
        if not rate.spend(1, now):
            raise self._limited("calls_per_s", f"more than {limit} calls a second of this user")

    def _limited(self, setting: str, message: str) -> CallRefused:
        self.counts.limited[setting] += 1
        self._complaints.warn(setting, f"{message}: limit {setting}")
        return CallRefused(Code.RESOURCE_EXHAUSTED, f"{message}, which is the limit")


def certificate_user(found: Mapping[str, list[bytes]], user_from: str) -> str | None:
    """Return the user in a client's verified certificate, if certificates name users."""
    if user_from == "login":
        return None
    key = "x509_common_name" if user_from == "cn" else "x509_subject_alternative_name"
    names = [name.decode("utf-8", "replace") for name in found.get(key, ())]
    if not names or (user_from == "cn" and len(names) != 1) or not names[0].isprintable():
        return None
    return names[0]


def _address(context: Any) -> str:
    """Return the address of the client without its port: gRPC has `ipv4:127.0.0.1:1234` or `ipv6:%5B::1%5D:1234`."""
    peer: str = context.peer()
    return peer.partition(":")[2].rpartition(":")[0].replace("%5B", "").replace("%5D", "")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
