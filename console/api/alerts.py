"""What needs attention: conditions with their state, the log of events, the audit of actions, and the actions."""

from typing import Annotated, Any

import msgspec

from ..http.sessions import Session
from ..problems import Problem
from ..reading.conditions import findings
from ..sources import Sources
from .action_plans import ActionBody, planned
from .clients import PAGE_MOST, Events, events_where
from .overview import NoQuery

Text = Annotated[str, msgspec.Meta(max_length=65_535)]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Condition. state: `firing`, `quiet`, or `unknown` without samples of the last minutes."""

    name: str
    severity: str
    state: str
    text: str
    when: str
    value: float | None
    limit: float | None
    unit: str
    since_us: int | None
    """Since when, looked for up to six hours back."""
    then: str
    """What to do, in Markdown."""
    docs: str
    """Page and section of the documentation."""


class Alerts(msgspec.Struct, frozen=True, kw_only=True):
    """All conditions, those that hold first."""

    alerts: list[Alert]


def alerts(sources: Sources, session: Session, query: NoQuery) -> Alerts:
    """Return each condition with its state: the same as the alert rules for Prometheus."""
    found = [
        Alert(
            name=one.name,
            severity=one.severity,
            state="firing" if one.is_firing else "quiet" if one.is_known else "unknown",
            text=one.text,
            when=one.when,
            value=one.value,
            limit=one.limit,
            unit=one.unit,
            since_us=one.since_us,
            then=one.then,
            docs=one.docs,
        )
        for one in findings(sources.samples)
    ]
    return Alerts(alerts=sorted(found, key=lambda one: one.state != "firing"))


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events, the newest first."""

    event: Annotated[
        Annotated[str, msgspec.Meta(max_length=100)] | None, msgspec.Meta(description="only of this kind")
    ] = None
    client: Annotated[Text | None, msgspec.Meta(description="only of this client")] = None
    before: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None, msgspec.Meta(description="`next` of the page before")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


def events(sources: Sources, session: Session, query: EventsQuery) -> Events:
    """Return events that the server has recorded."""
    return events_where(sources, query.before, query.limit, client=query.client, event=query.event)


class ActionsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audit of actions, the newest first."""

    before: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None, msgspec.Meta(description="`next` of the page before")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MOST)] = 100


def actions(sources: Sources, session: Session, query: ActionsQuery) -> Events:
    """Return who did what from where, before it was done and how it ended."""
    return events_where(sources, query.before, query.limit, event="action")


class ActionDone(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of an action. text: the effect in words, with its numbers; command: the same as a command, if there is
    one; confirm: the name that a page has typed before, if something is lost; result: that of the server, empty for a
    preview."""

    action: str
    is_preview: bool
    text: str
    command: str | None
    confirm: str | None
    result: dict[str, Any]


def act(sources: Sources, session: Session, query: ActionBody) -> ActionDone:
    """Do something: an operator only, if actions are switched on; recorded before it is done."""
    if not sources.config.actions:
        raise Problem("actions-off", "actions are switched off: set console.actions = true")
    plan = planned(sources, session, query)
    result: dict[str, Any] = {}
    if not query.preview:
        by = {"via": "console", "user": session.user, "address": session.address}
        result = sources.server.call(query.action, by=by, **plan.request)
    return ActionDone(
        action=query.action,
        is_preview=query.preview,
        text=plan.text,
        command=plan.command,
        confirm=plan.confirm,
        result=result,
    )
