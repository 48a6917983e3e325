"""CONNECT: who may come in, with which session, and what CONNACK tells them."""

import functools
import time
from collections.abc import Callable
from dataclasses import replace

from mqtt_front.codec.packets import MQTT_5, Connack, Connect, Will
from mqtt_front.codec.properties import NO_PROPERTIES, Properties
from mqtt_front.errors import ProtocolViolation
from mqtt_front.handlers.ack import release_again
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import PACKET_BYTES_MAX, Link, Stay
from mqtt_front.protocol.outgoing_aliases import OutgoingAliases
from mqtt_front.reasons import Reason
from mqtt_front.runtime.timer_wheel import ticks
from mqtt_front.security.identity import Credentials, Identity, Refusal
from mqtt_front.sessions.session import Session, Target, session_key
from mqtt_front.sessions.session_document import NEVER_S

_KEY_BYTES_MAX = 65_535
"""The key of a session: documents count it with 16 bits."""


def connect(broker: Server, link: Link, packet: Connect) -> None:
    """Find out who the client is, at once or in a while, and let it in.

    Raises ProtocolViolation with the reason for CONNACK when it may not come in.
    """
    introduce(link, packet)
    check(broker, link, packet)
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


def introduce(link: Link, packet: Connect) -> None:
    """What the client says of itself holds for the answer already, also for a refusal."""
    link.client_id, link.bridge = packet.client_id, packet.bridge
    aliases = min(packet.properties.topic_alias_maximum or 0, link.broker.settings.delivery_alias_maximum)
    link.target = Target(
        packet.level,
        packet.properties.maximum_packet_size or PACKET_BYTES_MAX,
        OutgoingAliases(aliases) if aliases else None,
    )


def _decide(broker: Server, link: Link, packet: Connect, outcome: Identity | Refusal) -> None:
    if isinstance(outcome, Refusal):
        raise ProtocolViolation(outcome.message, outcome.reason)
    enter(broker, link, packet, outcome)


def enter(
    broker: Server,
    link: Link,
    packet: Connect,
    identity: Identity,
    authentication: Properties = NO_PROPERTIES,
) -> None:
    """Let the client in: end an older connection of it, find or make its session, answer, begin to deliver.

    `authentication` is what CONNACK says of an enhanced authentication. Raises ProtocolViolation as `connect` does.
    """
    check(broker, link, packet)  # once more: time may have passed
    link.client_id = packet.client_id or broker.new_client_id()
    key = session_key(link.client_id, identity.user)
    _check_session(broker, packet, key)
    older = broker.sessions.connected.get(key)
    if older is not None and older.client is not None:
        older.client.end(Reason.SESSION_TAKEN_OVER, f"the client connected again from {link.peer}")
    session, present = _session(broker, packet, key)
    keep_alive_s = _keep_alive_s(broker, packet)
    _bind(broker, link, packet, session, keep_alive_s)
    _identify(broker, link, session, identity)
    properties = replace(
        _connack_properties(broker, packet, session, keep_alive_s),
        authentication_method=authentication.authentication_method,
        authentication_data=authentication.authentication_data,
    )
    answer = Connack(present, Reason.SUCCESS, properties)
    welcome = functools.partial(_welcome, broker, link, session, packet, answer)
    if not _save(broker, link, packet, session, present, functools.partial(link.go_on, welcome)):
        welcome()


def _save(
    broker: Server, link: Link, packet: Connect, session: Session, present: bool, then: Callable[[], None]
) -> bool:
    """A client that knows that it is connected relies on its will and on its session, also when the server is killed at
    once: if there is anything to save, the link waits, and `then` is called when it is durable. Is there?"""
    missing = 0

    def saved() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            then()

    if packet.will is not None and _may_have(broker, link, packet.will):
        missing += 1
        link.will = broker.wills.keep(session.key, packet.will, session.expiry_s, saved)
    if bool(session.expiry_s) != present:  # it is to be on the disk and is not, or the other way round
        missing += 1
        # What its client published in a session before this one may still be on its way. Found in the log after a kill,
        # behind where the session says that it knows all, it would count as received in this one.
        broker.ingest.once_settled(functools.partial(_save_session, broker, link, session, saved))
    if missing:
        link.wait("answer about its session or will")
    return missing > 0


def _save_session(broker: Server, link: Link, session: Session, then: Callable[[], None]) -> None:
    if session.client is link:  # and has not gone meanwhile
        broker.sessions.save(session, then)


def _welcome(broker: Server, link: Link, session: Session, packet: Connect, answer: Connack) -> None:
    """The client is in: tell it so, and begin to deliver."""
    link.send(answer)
    if link.closing:  # there was no room for the answer in what it takes
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


def check(broker: Server, link: Link, packet: Connect) -> None:
    """Raise ProtocolViolation when nobody could come in like this, whoever it is."""
    if broker.stopping:
        raise ProtocolViolation("the server is stopping", Reason.SERVER_SHUTTING_DOWN)
    if link.refusal is not None:
        raise link.refusal
    if packet.level == MQTT_5 and packet.will is not None and packet.will.qos > broker.inbound.maximum_qos:
        raise ProtocolViolation("will at QoS 2 is not supported", Reason.QOS_NOT_SUPPORTED)


def _check_session(broker: Server, packet: Connect, key: str) -> None:
    """Raise ProtocolViolation when this client cannot have a session."""
    if len(key.encode()) > _KEY_BYTES_MAX:
        message = f"client id and user name of more than {_KEY_BYTES_MAX} bytes"
        raise ProtocolViolation(message, Reason.CLIENT_IDENTIFIER_NOT_VALID)
    if (
        _expiry_s(broker, packet)
        and key not in broker.sessions
        and len(broker.sessions) >= broker.settings.session_count
    ):
        limit = broker.settings.session_count
        message = f"there are {limit} sessions, which is the limit"
        raise ProtocolViolation(message, Reason.QUOTA_EXCEEDED, "session_count")


def _expiry_s(broker: Server, packet: Connect) -> int:
    """How long the session outlives its connection. MQTT 3 knows two answers: not at all, and without end."""
    if packet.level == MQTT_5:
        wanted = packet.properties.session_expiry_interval or 0
    else:
        wanted = 0 if packet.clean_start else NEVER_S
    return min(wanted, broker.settings.session_expiry_max_s)


def _session(broker: Server, packet: Connect, key: str) -> tuple[Session, bool]:
    """The session of the client, and whether there was one."""
    keys = {key}
    if not broker.settings.lets_any_anonymous_in and broker.sessions.adopt(packet.client_id, key):
        keys.add(packet.client_id)  # it began before clients had to say who they are
    session = None
    if packet.clean_start:
        broker.sessions.discard(key)
    else:
        session = broker.sessions.take(key, broker.restore)
    present = session is not None
    for each in keys:
        broker.wills.returned(each, session_continues=present)
    if session is None:
        session = Session(key)
    session.expiry_s = _expiry_s(broker, packet)
    broker.sessions.connect(session)
    return session, present


def _keep_alive_s(broker: Server, packet: Connect) -> int:
    """The keep alive in force. Only MQTT 5 can be told another one than it asked for."""
    limit = broker.settings.keep_alive_max_s
    if packet.level == MQTT_5 and limit and not 0 < packet.keep_alive <= limit:
        return limit
    return packet.keep_alive


def _bind(broker: Server, link: Link, packet: Connect, session: Session, keep_alive_s: int) -> None:
    """The link and the session know each other, and what the client asked for is in force."""
    wanted = packet.properties
    link.session, link.session_key, session.client = session, session.key, link
    link.owner = broker.router.shares.owner(session.key)
    link.inflight_limit = min(wanted.receive_maximum or 65_535, broker.settings.inflight_count)
    link.last_seen = broker.deadlines.now
    link.allowed_ticks = ticks(keep_alive_s * 1.5) if keep_alive_s else 0
    broker.deadlines.watch(link)


def _identify(broker: Server, link: Link, session: Session, identity: Identity) -> None:
    """What the client may do is in force, and for how long."""
    link.identity = identity
    link.permissions = session.permissions = broker.guard.permissions(identity, session.client_id)
    if identity.expires_s is not None:
        left_s = identity.expires_s - time.time()
        link.stay = Stay(link, broker.deadlines.now, ticks(max(0.0, left_s)))
        broker.deadlines.watch(link.stay)


def _may_have(broker: Server, link: Link, will: Will) -> bool:
    """May the client leave this will?"""
    if link.may_write(will.topic):
        return True
    # Let in all the same: what it has to say while it lives may be in order, and it is not told of it by others.
    broker.log.warning("%r has a will to %r, where it may not publish: left out", link, will.topic[:200])
    return False


def _response_information(broker: Server, packet: Connect, session: Session) -> str | None:
    """A topic for answers to this client, if it asks and the server is told to have one (section 3.1.2.11.6)."""
    prefix = broker.settings.response_topic_prefix
    if prefix is None or not packet.properties.request_response_information:
        return None
    return prefix + session.client_id


def _connack_properties(broker: Server, packet: Connect, session: Session, keep_alive_s: int) -> Properties:
    """Exactly what is enforced, where it differs from what a client assumes."""
    if packet.level != MQTT_5:
        return NO_PROPERTIES
    inbound, wanted_s = broker.inbound, packet.properties.session_expiry_interval or 0
    return Properties(
        session_expiry_interval=session.expiry_s if session.expiry_s != wanted_s else None,
        assigned_client_identifier=None if packet.client_id else session.client_id,
        server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
        receive_maximum=inbound.receive_maximum if inbound.receive_maximum < 65_535 else None,
        maximum_packet_size=inbound.packet_bytes,
        topic_alias_maximum=inbound.topic_alias_maximum or None,
        response_information=_response_information(broker, packet, session),
        maximum_qos=inbound.maximum_qos if inbound.maximum_qos < 2 else None,
    )
