"""CONNECT: admission, the session, and the properties of CONNACK."""

import functools
import time
from collections.abc import Callable

from mqtt_front.client_list import facts
from mqtt_front.codec.packets import MQTT_5, Connack, Connect, Will
from mqtt_front.codec.properties import NO_PROPERTIES, Properties
from mqtt_front.errors import ProtocolViolation
from mqtt_front.handlers.ack import release_again
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import PACKET_BYTES_MAX, ClientProtocol, Stay
from mqtt_front.protocol.topic_aliases import OutgoingAliases
from mqtt_front.reasons import Reason
from mqtt_front.runtime.timer_wheel import ticks
from mqtt_front.security.guard import REASONS
from mqtt_front.sessions.session import Session, Target, session_key
from mqtt_front.sessions.session_document import NEVER_S
from mqtt_front.sessions.session_use import SESSION_BYTES
from timestone.address import is_loopback
from timestone_access.identity import Credentials, Identity, Refusal

_KEY_BYTES_MAX = 65_535
"""Maximum size of a session key: documents store its length in 16 bits."""


def connect(broker: Server, link: ClientProtocol, packet: Connect) -> None:
    """Authenticate the client, now or later, and admit it. Raises ProtocolViolation with the reason for CONNACK if
    it is refused."""
    introduce(link, packet)
    check(broker, link)
    if link.redirect is not None and packet.level == MQTT_5:
        link.end(Reason.USE_ANOTHER_SERVER, f"redirected to {link.redirect}")
        return
    credentials = Credentials(
        packet.client_id, packet.user_name, packet.password, link.address, link.certificate_name
    )
    known: list[Identity | Refusal] = []
    waiting = False

    def decided(outcome: Identity | Refusal) -> None:
        if waiting:
            link.go_on(functools.partial(_decide, broker, link, packet, outcome))
        else:
            known.append(outcome)

    broker.guard.admit(credentials, decided, allow_anonymous=link.allow_anonymous)
    if known:
        _decide(broker, link, packet, known[0])
    else:
        waiting = True
        link.wait("answer about its login")


def introduce(link: ClientProtocol, packet: Connect) -> None:
    """Apply what the client states of itself, which holds for the answer too, also for a refusal."""
    link.client_id, link.bridge = packet.client_id, packet.bridge
    aliases = min(packet.properties.topic_alias_maximum or 0, link.broker.settings.delivery_alias_maximum)
    link.target = Target(
        packet.level,
        packet.properties.maximum_packet_size or PACKET_BYTES_MAX,
        OutgoingAliases(aliases) if aliases else None,
    )


def _decide(broker: Server, link: ClientProtocol, packet: Connect, outcome: Identity | Refusal) -> None:
    if isinstance(outcome, Refusal):
        raise ProtocolViolation(outcome.message, REASONS[outcome.cause])
    enter(broker, link, packet, outcome)


def enter(
    broker: Server,
    link: ClientProtocol,
    packet: Connect,
    identity: Identity,
    authentication: Properties = NO_PROPERTIES,
) -> None:
    """Admit the client: end its older connection, find or create its session, answer, and begin to deliver.
    authentication: data of an enhanced authentication for CONNACK. Raises ProtocolViolation as `connect`."""
    check(broker, link)  # again: time may have passed
    link.client_id = packet.client_id or broker.new_client_id()
    key = session_key(link.client_id, identity.user)
    _check_limits(broker, packet, key)
    older = broker.sessions.connected.get(key)
    if older is not None and older.client is not None:
        older.client.end(Reason.SESSION_TAKEN_OVER, f"the client connected again from {link.peer}")
    session, present = _session(broker, packet, key)
    keep_alive_s = _keep_alive_s(broker, packet)
    _bind(broker, link, packet, session, keep_alive_s)
    _identify(broker, link, session, identity)
    properties = _connack_properties(broker, packet, session, keep_alive_s, authentication)
    answer = Connack(present, Reason.SUCCESS, properties)
    welcome = functools.partial(_welcome, broker, link, session, packet, answer)
    if not _save(broker, link, packet, session, present, functools.partial(link.go_on, welcome)):
        welcome()


def _save(
    broker: Server,
    link: ClientProtocol,
    packet: Connect,
    session: Session,
    present: bool,
    then: Callable[[], None],
) -> bool:
    """Save what a client relies on once it is connected, even if the server is killed at once: its will, its session
    with the packet ids in use, and the end of an earlier session. If something is not durable yet, the client waits,
    `then` is called when it is, and the result is True."""
    missing = 0

    def saved() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            then()

    if packet.will is not None and _may_have(broker, link, packet.will):
        missing += 1
        link.will = broker.wills.keep(session.key, packet.will, session.expiry_s, saved)
    if session.expiry_s and not present:
        missing += 1
        # Publishes of its client in an earlier session may not be settled. Found in the log after a kill, at an
        # offset beyond those that the session covers, they would count as received in this session.
        broker.ingest.once_settled(functools.partial(_save_session, broker, link, session, saved))
    elif not broker.sessions.is_saved(session.key):
        missing += 1
        broker.sessions.once_saved(session.key, saved)
    if missing:
        link.wait("answer about its session or will")
    return missing > 0


def _save_session(broker: Server, link: ClientProtocol, session: Session, then: Callable[[], None]) -> None:
    if session.client is link:  # unless it disconnected in between
        broker.sessions.save(session, then)


def _welcome(
    broker: Server, link: ClientProtocol, session: Session, packet: Connect, answer: Connack
) -> None:
    """Send CONNACK and begin to deliver."""
    link.send(answer)
    if link.closing:  # the answer exceeded the client's maximum packet size
        return
    link.welcomed()
    identity, keep_alive_s = link.identity, answer.properties.server_keep_alive
    assert identity is not None
    broker.log.info(
        "%r connected: user=%r by=%s mqtt=%d keep_alive_s=%d session=%s expiry_s=%d",
        link, identity.user, identity.method, packet.level,
        packet.keep_alive if keep_alive_s is None else keep_alive_s,
        "resumed" if answer.session_present else "new", session.expiry_s,
    )  # fmt: skip
    gaps = session.attach(broker.delivery.wake, broker.settings.deliver_missed_qos0)
    for name, count in gaps.items():
        broker.delivery.counts.gap += count
        broker.log.warning("%r missed %d offsets of log %s: retention took them", link, count, name)
    release_again(link, session)
    broker.delivery.start(session)
    if broker.report is not None:
        broker.report("connected", {**facts(link), "session_resumed": answer.session_present})


def check(broker: Server, link: ClientProtocol) -> None:
    """Raise ProtocolViolation for a CONNECT that is refused for every client."""
    if broker.stopping:
        raise ProtocolViolation("the server is stopping", Reason.SERVER_SHUTTING_DOWN)
    if link.refusal is not None:
        raise link.refusal


def _check_limits(broker: Server, packet: Connect, key: str) -> None:
    """Raise ProtocolViolation if the client would exceed a limit of the server, or its owner's share of one."""
    if len(key.encode()) > _KEY_BYTES_MAX:
        message = f"client id and user name of more than {_KEY_BYTES_MAX} bytes"
        raise ProtocolViolation(message, Reason.CLIENT_IDENTIFIER_NOT_VALID)
    over = None
    if key not in broker.sessions.connected:
        over = broker.sessions.use.over_connections(key)
    if over is None and _expiry_s(broker, packet) and key not in broker.sessions:
        over = broker.sessions.use.over(key, 1, SESSION_BYTES + len(key))
    if over is None and packet.will is not None:
        over = broker.wills.over(key, packet.will)
    if over is not None:
        setting, message = over
        raise ProtocolViolation(message, Reason.QUOTA_EXCEEDED, setting)


def _expiry_s(broker: Server, packet: Connect) -> int:
    """Return how long the session outlives its connection; for MQTT 3 either not at all or permanently."""
    if packet.level == MQTT_5:
        wanted = packet.properties.session_expiry_interval or 0
    else:
        wanted = 0 if packet.clean_start else NEVER_S
    return min(wanted, broker.settings.session_expiry_max_s)


def _session(broker: Server, packet: Connect, key: str) -> tuple[Session, bool]:
    """Return the session of the client, and whether it existed."""
    keys = {key}
    if not broker.settings.lets_any_anonymous_in and broker.sessions.adopt(packet.client_id, key):
        keys.add(packet.client_id)  # it began before the server required logins
    session = None
    if packet.clean_start:
        broker.sessions.discard(key)
    else:
        session = broker.sessions.take(key, broker.state.restore)
    present = session is not None
    for each in keys:
        broker.wills.returned(each, session_continues=present)
    if session is None:
        session = Session(key)
    session.expiry_s = _expiry_s(broker, packet)
    broker.sessions.connect(session)
    return session, present


def _keep_alive_s(broker: Server, packet: Connect) -> int:
    """Return the keep alive in effect. Only MQTT 5 can be assigned one."""
    limit = broker.settings.keep_alive_max_s
    if packet.level == MQTT_5 and limit and not 0 < packet.keep_alive <= limit:
        return limit
    return packet.keep_alive


def _bind(broker: Server, link: ClientProtocol, packet: Connect, session: Session, keep_alive_s: int) -> None:
    """Bind client and session, and apply what the client asked for."""
    wanted = packet.properties
    link.session, link.session_key, session.client = session, session.key, link
    link.owner = broker.router.shares.owner(session.key)
    link.inflight_limit = min(wanted.receive_maximum or 65_535, broker.settings.inflight_count)
    link.last_seen = broker.deadlines.now
    link.allowed_ticks = ticks(keep_alive_s * 1.5) if keep_alive_s else 0
    broker.deadlines.watch(link)


def _identify(broker: Server, link: ClientProtocol, session: Session, identity: Identity) -> None:
    """Apply the permissions of the client and their duration."""
    link.identity = identity
    link.permissions = session.permissions = broker.guard.permissions(identity, session.client_id)
    session.reads_server = _reads_server(broker, link, identity)
    if identity.expires_s is not None:
        left_s = identity.expires_s - time.time()
        link.stay = Stay(link, broker.deadlines.now, ticks(max(0.0, left_s)))
        broker.deadlines.watch(link.stay)


def _reads_server(broker: Server, link: ClientProtocol, identity: Identity) -> bool:
    """Return whether a client may read what the server records about itself: with access rules, where they let it;
    without, a user of `backend_users`, or a client of this machine if there are no logins."""
    if link.permissions is not None:
        return True
    if identity.user is not None:
        return identity.user in broker.settings.backend_users
    return not broker.settings.knows_users and is_loopback(link.address)


def _may_have(broker: Server, link: ClientProtocol, will: Will) -> bool:
    """Return whether the client may have this will."""
    if link.may_write(will.topic):
        return True
    # Admitted all the same: what it publishes itself may be permitted, and it has no other way to learn of this.
    broker.log.warning("%r has a will to %r, where it may not publish: left out", link, will.topic[:200])
    return False


def _connack_properties(
    broker: Server, packet: Connect, session: Session, keep_alive_s: int, authentication: Properties
) -> Properties:
    """Return the properties that state what the server enforces, where it differs from the defaults."""
    if packet.level != MQTT_5:
        return NO_PROPERTIES
    inbound, wanted_s = broker.inbound, packet.properties.session_expiry_interval or 0
    asks = packet.properties.request_response_information  # section 3.1.2.11.6
    prefix = broker.settings.response_topic_prefix if asks else None
    return Properties(
        session_expiry_interval=session.expiry_s if session.expiry_s != wanted_s else None,
        assigned_client_identifier=None if packet.client_id else session.client_id,
        authentication_method=authentication.authentication_method,
        authentication_data=authentication.authentication_data,
        server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
        receive_maximum=inbound.receive_maximum if inbound.receive_maximum < 65_535 else None,
        maximum_packet_size=inbound.packet_bytes,
        topic_alias_maximum=inbound.topic_alias_maximum or None,
        response_information=None if prefix is None else prefix + session.client_id,
    )
