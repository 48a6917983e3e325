"""The calls of the API. This table is what the application serves and what the OpenAPI document describes."""

from ..config import Role
from . import access, alerts, clients, logs, overview, pipeline, readers, records, stream, topics
from .route import Route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/me", Role.NONE, access.me),
    Route("POST", "/login", Role.NONE, access.login),
    Route("POST", "/logout", Role.NONE, access.logout),
    Route("GET", "/overview", Role.FIGURES, overview.overview),
    Route("GET", "/series", Role.FIGURES, overview.series),
    Route("GET", "/clients", Role.FIGURES, clients.clients, rows="clients"),
    Route("GET", "/client", Role.FIGURES, clients.client),
    Route("GET", "/sessions", Role.FIGURES, clients.sessions, rows="sessions"),
    Route("GET", "/client/events", Role.FIGURES, clients.client_events, rows="events"),
    Route("GET", "/topics", Role.FIGURES, topics.topics, rows="nodes"),
    Route("GET", "/topics/search", Role.FIGURES, topics.topics_search, rows="topics"),
    Route("GET", "/topics/value", Role.READER, topics.topics_value, rows="values"),
    Route("GET", "/topics/series", Role.READER, topics.topics_series),
    Route("GET", "/logs", Role.FIGURES, logs.logs, rows="logs"),
    Route("GET", "/logs/{log}", Role.FIGURES, logs.log),
    Route("GET", "/logs/{log}/segments", Role.FIGURES, logs.segments, rows="segments"),
    Route("GET", "/logs/{log}/map", Role.FIGURES, logs.segment_map),
    Route("GET", "/logs/{log}/offset", Role.FIGURES, logs.offset),
    Route("GET", "/records", Role.READER, records.records, rows="records"),
    Route("GET", "/records/{log}/{partition}/{offset}", Role.READER, records.record),
    Route("GET", "/records/{log}/{partition}/{offset}/raw", Role.READER, records.record_raw, "bytes"),
    Route("GET", "/readers", Role.FIGURES, readers.readers, rows="readers"),
    Route("GET", "/pipeline", Role.FIGURES, pipeline.pipeline),
    Route("GET", "/pipeline/dead-letters", Role.READER, pipeline.pipeline_dead_letters, rows="letters"),
    Route("GET", "/alerts", Role.FIGURES, alerts.alerts, rows="alerts"),
    Route("GET", "/events", Role.FIGURES, alerts.events, rows="events"),
    Route("GET", "/actions", Role.FIGURES, alerts.actions, rows="events"),
    Route("POST", "/actions", Role.OPERATOR, alerts.act),
    Route("GET", "/stream", Role.FIGURES, stream.stream, "stream"),
    Route("GET", "/about", Role.FIGURES, access.about),
)
