"""Settings of the MQTT front: frozen values with units, ranges and the reason for each limit. Reads nothing."""

from dataclasses import dataclass, field

from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.security.settings import SecuritySettings
from timestone.address import parse_address
from timestone.config import KIB, MIB, Ack
from timestone.filters import validate_filter
from timestone.format.names import validate_target
from timestone.settings_schema import Declared, setting
from timestone_access.settings import check_exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Log of the topics that match a filter."""

    filter: str = field(metadata={"help": "MQTT topic filter"})
    log: str = field(metadata={"help": "name of the log"})

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid filter or name."""
        validate_filter(self.filter)
        validate_target(self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings(SecuritySettings):
    """Settings of the MQTT listeners and all behind them. Raises ValueError for contradicting settings.

    Each limit states what it protects. Over a limit, the client gets the reason code of MQTT 5 or, before MQTT 5, a
    closed connection, and the server logs one line."""

    # Behaviour.
    listen: str | None = setting(
        "127.0.0.1:1883",
        "address of plain TCP; port 0 selects a free port; none: only `listeners`",
        heading="listeners, topics and sessions",
        metavar="HOST:PORT",
    )
    listeners: tuple[ListenerSettings, ...] = setting(
        (), "tables of further listeners, for TLS, WebSocket or other rules"
    )
    share_ports: bool = setting(
        False,
        "let other processes of this user listen at the same addresses, and take a share of the clients",
    )
    ack: Ack | None = setting(
        None, "level at which a PUBACK is sent: memory, written or synced; none: the store's ack"
    )
    default_log: str = setting("mqtt", "log of the topics that match no route", metavar="LOG")
    routes: tuple[Route, ...] = setting(
        (), "tables of filter and log; the first filter that matches a topic applies"
    )
    session_expiry_max_s: int = setting(
        0xFFFFFFFF,
        "maximum time that a session outlives its connection, also that of sessions of MQTT 3 without clean session; "
        "4294967295: it never expires",
        low=0,
        high=0xFFFFFFFF,
    )
    server_reference: str | None = setting(
        None,
        "server that MQTT 5 clients are redirected to when this one has too many or stops; none: no "
        "redirection",
        metavar="HOST:PORT",
    )
    redirect: bool = setting(False, "admit no client and redirect all permanently to server_reference")
    response_topic_prefix: str | None = setting(
        None,
        "response information for MQTT 5 clients that ask for it: this prefix and their client id; "
        "none: no response information",
    )
    deliver_missed_qos0: bool = setting(
        False, "also deliver QoS 0 messages that a session missed while it was disconnected"
    )

    queue_expiry_s: int = setting(
        2_592_000,
        "time that a queue outlives its last subscribed session (30 days); 4294967295: it never expires",
        low=0,
        high=0xFFFFFFFF,
    )

    # Limits of the server.
    user_share_percent: int = setting(
        50,
        "share of connection_count, session_count, retained_count and other limits of the server for one user, in "
        "percent; without logins, for one client id; 100: all of it",
        low=1,
        high=100,
    )
    connection_count: int = setting(
        10_000,
        "connected clients; each takes a file descriptor and some KiB",
        low=1,
        heading="limits of the server",
    )
    connects_per_s: int = setting(
        1000,
        "clients admitted a second on average, with bursts of ten seconds' worth; room for a fleet that reconnects, "
        "and a limit for clients that connect again and again; 0: no limit",
        low=0,
    )
    connect_timeout_ms: int = setting(
        10_000,
        "time for the handshake and CONNECT of a new connection; protects against idle ones",
        low=100,
    )
    connect_bytes: int = setting(
        128 * KIB,
        "maximum packet size before a client is admitted; any client could make the server buffer one",
        low=KIB,
        high=256 * MIB,
    )
    submitted_bytes: int = setting(
        64 * MIB,
        "unsettled publishes of all clients; above it publishers are not read from",
        low=KIB,
    )
    total_unsent_bytes: int = setting(
        256 * MIB,
        "unsent deliveries in memory, for all slow clients together; above it those that have not read for the longest "
        "time are disconnected, and their sessions continue at the same place after reconnecting",
        low=KIB,
    )
    session_count: int = setting(
        1_000_000, "sessions, connected or not; about 1 KiB of memory each while not connected", low=1
    )
    session_bytes: int = setting(
        1024 * MIB,
        "size of all sessions, mainly their topic filters; kept in memory, and in the catalogue if they outlive their "
        "connections",
        low=KIB,
    )
    will_bytes: int = setting(
        64 * MIB, "topics, properties and payloads of all wills, which are kept in memory", low=KIB
    )

    retained_count: int = setting(
        100_000, "topics with a retained message; every new subscription searches them", low=0
    )
    retained_bytes: int = setting(
        64 * MIB, "topics, properties and payloads of all retained messages, which are kept in memory", low=0
    )

    shared_count: int = setting(
        10_000,
        "shared subscriptions and queues, each counted once for each log; they are saved together",
        low=0,
    )

    # Limits of one client.
    packet_bytes: int = setting(
        MIB,
        "maximum size of a received packet; an incomplete one is held in memory",
        low=128,
        high=256 * MIB,
        heading="limits of one client",
    )
    client_submitted_bytes: int = setting(
        256 * KIB,
        "unsettled publishes of one client; above it the client is not read from; a higher limit delays other "
        "publishers, and increases the throughput of one client on a disk that flushes slowly",
        low=KIB,
    )
    client_share_bytes_per_s: int = setting(
        4 * MIB,
        "minimum rate of a client that publishes faster than the disk settles, beside other publishers; among few such "
        "clients the rate is higher",
        low=64 * KIB,
    )
    receive_maximum: int = setting(
        4096,
        "unacknowledged publishes of one MQTT 5 client, at QoS 2 incomplete ones; more is a protocol error",
        low=1,
        high=65_535,
    )
    inflight_count: int = setting(
        1024,
        "unacknowledged deliveries to one client; an MQTT 5 client may request fewer",
        low=1,
        high=65_535,
    )
    unsent_bytes: int = setting(
        256 * KIB,
        "unsent deliveries in memory for a slow client; above it reading for it pauses",
        low=KIB,
        high=1024 * MIB,
    )
    client_publishes_per_s: int = setting(
        0,
        "publishes of one client a second on average, with bursts of ten seconds' worth; 0: limited only by the disk, "
        "through TCP",
        low=0,
    )
    client_bytes_per_s: int = setting(0, "the same for bytes of publishes", low=0)
    client_requests_per_s: int = setting(
        4000,
        "PINGREQ, AUTH and topic filters in SUBSCRIBE and UNSUBSCRIBE of one client a second on average, with bursts "
        "of ten seconds' worth; each is answered individually; 0: no limit",
        low=0,
    )
    packet_filter_count: int = setting(
        10_000,
        "topic filters in one SUBSCRIBE or UNSUBSCRIBE, which is answered once all of them are processed",
        low=1,
    )
    client_topic_count: int = setting(
        100_000,
        "new topics in a log by one user over all its connections; a log keeps them permanently; without logins, by "
        "one client id",
        low=0,
    )
    subscription_count: int = setting(1000, "subscriptions of one client; each filters what it reads", low=1)
    topic_alias_maximum: int = setting(
        32, "topic aliases that one client may set on its publishes", low=0, high=65_535
    )
    delivery_alias_maximum: int = setting(
        128,
        "topic aliases for deliveries to one client, which may request fewer; about 200 bytes of memory each",
        low=0,
        high=65_535,
    )
    topic_levels: int = setting(
        128,
        "levels of a topic or filter; deep ones take time to match and indicate a mistake",
        low=1,
        high=65_536,
    )
    topic_bytes: int = setting(
        4096,
        "maximum size of a topic or filter; logs and subscriptions keep them in memory",
        low=1,
        high=65_535,
    )
    keep_alive_max_s: int = setting(
        0,
        "maximum keep alive, also for clients that request none; sent to MQTT 5 clients as the server keep alive; "
        "0: as requested",
        low=0,
        high=65_535,
    )

    system_interval_s: int = setting(
        10, "interval of publishing changed values under $SYS; 0: no topics under $SYS", low=0
    )

    traces_per_s: int = setting(
        0,
        "batches of publishes that are traced a second, from their arrival to the first delivery, into the log "
        "timestone.events; 0: none",
        low=0,
        high=100,
    )

    # Performance.
    receive_bytes: int = setting(
        256 * KIB,
        "receive buffer, shared by all connections",
        low=4 * KIB,
        high=64 * MIB,
        heading="performance",
    )
    session_save_ms: int = setting(
        1000,
        "interval of saving the offsets of sessions; deliveries acknowledged since are sent again after a kill",
        low=10,
    )

    def __post_init__(self) -> None:
        # Strings are accepted for enumerations.
        if self.ack is not None:
            object.__setattr__(self, "ack", Ack(self.ack))
        Declared.__post_init__(self)
        validate_target(self.default_log)
        if self.listen is not None:
            parse_address(self.listen, setting="listen")
        if self.device_topics is not None:
            validate_filter(self.device_topics)
            if not {"%c", "%u"} & set(self.device_topics.split("/")):
                raise ValueError(
                    f"invalid device_topics: expected a level %c or %u, got {self.device_topics!r}"
                )
        if self.redirect and self.server_reference is None:
            raise ValueError(
                "invalid redirect: expected server_reference, the server that clients are redirected to"
            )
        if not self.all_listeners:
            raise ValueError(
                "invalid listen: expected an address or `listeners`, got none: no client could connect"
            )
        for listener in self.all_listeners:
            self._check(listener)

    @property
    def logs(self) -> list[str]:
        """Return the logs that topics go to, each once; the default log first."""
        return list(dict.fromkeys([self.default_log, *(route.log for route in self.routes)]))

    @property
    def all_listeners(self) -> tuple[ListenerSettings, ...]:
        """Return the plain listener of `listen`, if there is one, then those of the tables."""
        plain = () if self.listen is None else (ListenerSettings(address=self.listen),)
        return plain + self.listeners

    @property
    def knows_users(self) -> bool:
        """Return whether clients can authenticate on any listener."""
        return self.authenticates or any(one.user_from != "login" for one in self.all_listeners)

    def lets_anonymous_in(self, listener: ListenerSettings) -> bool:
        """Return whether a listener admits clients without credentials."""
        return self.anonymous_by_default if listener.allow_anonymous is None else listener.allow_anonymous

    def who_may_connect(self, listener: ListenerSettings) -> str:
        """Return who may connect to a listener, for the start message."""
        ways = {
            "client certificates": listener.user_from != "login",
            "tokens": self.jwt.enabled,
            "passwords": self.password_file is not None,
            **{f"plug-in {name}": True for name in self.authenticators},
            "anonymous": self.lets_anonymous_in(listener),
        }
        return ", ".join(name for name, possible in ways.items() if possible)

    @property
    def lets_any_anonymous_in(self) -> bool:
        """Return whether any listener admits clients without credentials."""
        return any(
            self.lets_anonymous_in(one) and not (one.require_certificate and one.user_from != "login")
            for one in self.all_listeners
        )

    def _check(self, listener: ListenerSettings) -> None:
        anonymous = self.lets_anonymous_in(listener)
        if anonymous:
            allowed = listener.require_certificate or self.allow_anonymous_remote
            check_exposure(listener.address, is_local=listener.is_local, remote_allowed=allowed)
        if not anonymous and not self.authenticates and listener.user_from == "login":
            raise ValueError(
                f"no client could connect to {listener.address}: anonymous clients are refused, and there is no "
                "password_file, no jwt and no authenticator to admit others"
            )
