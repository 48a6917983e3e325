"""Enhanced authentication of MQTT 5 (section 4.12): AUTH packets with a SCRAM exchange, at CONNECT and later."""

from mqtt_front.codec.packets import Auth, Connect
from mqtt_front.codec.properties import Properties
from mqtt_front.errors import ProtocolViolation
from mqtt_front.handlers import connect as admission
from mqtt_front.handlers.server import Server
from mqtt_front.net.client_protocol import ClientProtocol, Exchange
from mqtt_front.reasons import Reason
from mqtt_front.security.guard import REASONS
from timestone_access.identity import Refusal
from timestone_access.passwords.scram_hash import METHOD


def connect(broker: Server, link: ClientProtocol, packet: Connect) -> None:
    """Handle CONNECT: begin the exchange of an authentication method, or let `handlers.connect` decide without one."""
    method = packet.properties.authentication_method
    if method is None:
        admission.connect(broker, link, packet)
        return
    admission.introduce(link, packet)
    admission.check(broker, link)
    if method != METHOD:
        raise ProtocolViolation(f"authentication method {method[:40]!r}", Reason.BAD_AUTHENTICATION_METHOD)
    link.awaited = "AUTH"
    link.connection.authenticate()
    _begin(broker, link, packet, packet.properties)


def authenticate(broker: Server, link: ClientProtocol, packet: Auth) -> None:
    """Handle AUTH: the next step of an exchange, or the start of a re-authentication."""
    identity = link.identity
    if link.exchange is None and (identity is None or identity.method != "scram"):
        raise ProtocolViolation("AUTH without an authentication method in CONNECT")
    if packet.properties.authentication_method != METHOD:
        raise ProtocolViolation("AUTH with an authentication method other than that of CONNECT")
    if packet.reason == Reason.REAUTHENTICATE and link.exchange is None:
        _begin(broker, link, None, packet.properties)
    elif packet.reason == Reason.CONTINUE_AUTHENTICATION and link.exchange is not None:
        _finish(broker, link, link.exchange, packet.properties.authentication_data or b"")
    else:
        raise ProtocolViolation(f"AUTH with reason {packet.reason:#04x} at this point")


def _begin(broker: Server, link: ClientProtocol, packet: Connect | None, properties: Properties) -> None:
    scram = broker.guard.scram_exchange()
    if scram is None:
        reason = Reason.NOT_AUTHORIZED if link.connected else Reason.BAD_AUTHENTICATION_METHOD
        raise ProtocolViolation("no user has a SCRAM password", reason)
    answer = broker.guard.scram_first(scram, properties.authentication_data or b"", link.address)
    if isinstance(answer, Refusal):
        raise _violation(answer, link)
    link.exchange = Exchange(scram, packet)
    link.send(Auth(Reason.CONTINUE_AUTHENTICATION, _said(answer)))


def _finish(broker: Server, link: ClientProtocol, exchange: Exchange, message: bytes) -> None:
    link.exchange = None
    outcome = broker.guard.scram_final(exchange.scram, message, link.address)
    if isinstance(outcome, Refusal):
        raise _violation(outcome, link)
    identity, answer = outcome
    if exchange.connect is not None:
        link.connection.open()
        admission.enter(broker, link, exchange.connect, identity, _said(answer))
        return
    before = link.identity
    if before is None or before.user != identity.user:
        raise ProtocolViolation("re-authenticated as another user", Reason.NOT_AUTHORIZED)
    link.identity = identity
    link.send(Auth(Reason.SUCCESS, _said(answer)))


def _violation(refusal: Refusal, link: ClientProtocol) -> ProtocolViolation:
    """Return the violation for a refusal: CONNACK has a reason for each, DISCONNECT only one."""
    return ProtocolViolation(
        refusal.message, Reason.NOT_AUTHORIZED if link.connected else REASONS[refusal.cause]
    )


def _said(data: bytes) -> Properties:
    return Properties(authentication_method=METHOD, authentication_data=data)
