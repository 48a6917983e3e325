"""The caller, login and logout; versions, settings and licences of the console."""

import functools
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Annotated, Any

import msgspec

from timestone.kernel import loops

from ..config import Role
from ..http.sessions import Session
from ..problems import Problem
from ..sources import Sources
from .overview import NoQuery, ServerState, server_state

_PARTS = ("starlette", "uvicorn", "h11", "msgspec")
Secret = Annotated[str, msgspec.Meta(max_length=4096)]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Caller. role: `none`, `figures`, `reader` or `operator`; token: for the header X-Timestone-Token of each
    POST."""

    user: str | None
    role: str
    token: str | None
    has_session: bool
    actions: bool
    """Whether actions are switched on."""
    can_login: bool
    """Whether users have passwords here; otherwise only the key that the command prints."""
    may_read_all: bool
    has_pipeline: bool
    """Whether the console shows the tables of a pipeline."""


def me(sources: Sources, session: Session, query: NoQuery) -> Me:
    """Return who the caller is and what it may do."""
    return me_of(sources, session)


def me_of(sources: Sources, session: Session) -> Me:
    """Return what a session may do."""
    return Me(
        user=session.user,
        role=session.role.word,
        token=session.token or None,
        has_session=bool(session.token),
        actions=sources.config.actions,
        can_login=bool(sources.config.users),
        may_read_all=session.all_payloads,
        has_pipeline=sources.tables is not None,
    )


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either the key that `timestone console` prints, or user and password."""

    key: Secret | None = None
    user: Secret | None = None
    password: Secret | None = None


def login(sources: Sources, session: Session, query: LoginBody) -> Me:
    """Log in, and start a session: a cookie, and a token for each POST."""
    found = _checked(sources, query, session.address)
    found.address = session.address
    session.new_id = sources.sessions.start(found)
    return me_of(sources, found)


def _checked(sources: Sources, body: LoginBody, address: str) -> Session:
    """Return the session of a login that is right. Raises Problem."""
    if body.key is not None:
        if sources.sessions.take_key(body.key):
            return Session(None, Role.OPERATOR, all_payloads=True)
        raise Problem("login-failed", "the key is not valid: each is valid once, until the console ends")
    if body.user is None or body.password is None:
        raise Problem("invalid-request", "expected a key, or user and password")
    return sources.logged_in(body.user, body.password, address)


def logout(sources: Sources, session: Session, query: NoQuery) -> Me:
    """Log out: the session ends in the console, too."""
    if session.token:  # not for a script, whose requests share one
        sources.sessions.end(session)
        session.new_id = ""
    return me_of(sources, Session(None, sources.config.anonymous))


class Licence(msgspec.Struct, frozen=True, kw_only=True):
    """Library in use."""

    name: str
    version: str
    licence: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What runs here. settings: of the console; no secret is in it."""

    version: str
    store: str
    kernel: str
    server: ServerState
    settings: dict[str, str]
    fronts: dict[str, dict[str, str]]
    """Figures of each front by name."""
    licences: list[Licence]


def about(sources: Sources, session: Session, query: NoQuery) -> About:
    """Return versions, settings and licences."""
    config, status = sources.config, sources.status()
    newest = sources.samples.last()
    return About(
        version=sources.version,
        store=str(sources.view.path.resolve()),
        kernel=loops.named(loops.REASON),
        server=server_state(sources, newest[-1] if newest else None),
        settings={
            "console": f"{config.host}:{config.port}",
            "console_hosts": ", ".join(config.hosts) or "none",
            "console_actions": "true" if config.actions else "false",
            "console_allow_plain": "true" if config.allow_plain else "false",
            "console_certificate": "set" if config.certificate else "not set",
            "console.users": f"{len(config.users)} set" if config.users else "not set",
            "anonymous role": config.anonymous.word,
        },
        fronts={
            str(name): {str(key): _shown(value) for key, value in figures.items() if _is_shown(value)}
            for name, figures in (status["parts"] if status else {}).items()
        },
        licences=[_licence(name) for name in _PARTS],
    )


def _is_shown(value: Any) -> bool:
    return value is not None and not isinstance(value, dict)


def _shown(value: Any) -> str:
    """Return a figure of a front as text: of a list, such as the listeners, the values of each entry."""
    if not isinstance(value, list):
        return str(value)
    entries = [one.values() if isinstance(one, dict) else [one] for one in value]
    return ", ".join(" ".join(map(str, entry)) for entry in entries)


@functools.cache
def _licence(name: str) -> Licence:
    try:
        facts = metadata(name).json
        licence = facts.get("license_expression") or facts.get("license") or ""
        return Licence(name=name, version=version(name), licence=str(licence).split("\n")[0][:100])
    except PackageNotFoundError:
        return Licence(name=name, version="", licence="")
