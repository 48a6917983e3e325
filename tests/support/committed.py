"""Where a session continues."""

from mqtt_front.sessions.session import Session


def committed(session: Session) -> dict[str, int]:
    """Return the lowest unacknowledged offset by key of the feed."""
    return {key: feed.window.committed for key, feed in session.feeds.items()}
