"""The settings of the MQTT front: frozen values with units, ranges and the reason for each limit. Nothing is
read here."""

from dataclasses import dataclass, field

from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.security.settings import SecuritySettings
from timestone.address import parse_address
from timestone.config import KIB, MIB, Ack
from timestone.declared import Declared, setting
from timestone.filters import validate_filter
from timestone.format.names import validate_log_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which log takes the topics that match a filter."""

    filter: str = field(metadata={"help": "MQTT topic filter"})
    log: str = field(metadata={"help": "name of the log"})

    def __post_init__(self) -> None:
        """Raises ValueError for a filter or name that can never be right."""
        validate_filter(self.filter)
        validate_log_name(self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings(SecuritySettings):
    """Settings of the MQTT listeners and what stands behind them. Raises ValueError when they contradict each
    other.

    Each limit says what it protects; over a limit the client gets the reason code of MQTT 5 or, before MQTT
    5, a closed connection, and the server one log line.
    """

    # Behaviour.
    listen: str | None = field(
        default="127.0.0.1:1883",
        metadata={
            "help": "address of plain TCP; port 0 takes a free one; none: only `listeners`",
            "heading": "listeners, topics and sessions",
            "metavar": "HOST:PORT",
        },
    )
    listeners: tuple[ListenerSettings, ...] = field(
        default=(), metadata={"help": "tables of more listeners: TLS, WebSocket, other rules"}
    )
    allow_anonymous_remote: bool = field(
        default=False, metadata={"help": "listen beyond loopback although no client has to say who it is"}
    )
    ack: Ack | None = field(
        default=None,
        metadata={"help": "what a PUBACK means: memory, written or synced; none: the store's ack"},
    )
    default_log: str = field(
        default="mqtt", metadata={"help": "the log of topics that no route takes", "metavar": "LOG"}
    )
    routes: tuple[Route, ...] = field(
        default=(),
        metadata={"help": "tables of filter and log; the first filter that matches a topic decides"},
    )
    session_expiry_max_s: int = setting(
        0xFFFFFFFF,
        "the longest that a session outlives its connection; sessions of MQTT 3 without clean session live as long; "
        "4294967295: without end",
        low=0,
        high=0xFFFFFFFF,
    )
    server_reference: str | None = field(
        default=None,
        metadata={
            "help": "another server: where MQTT 5 clients are sent that are too many here, or when this "
            "one stops; none: nowhere",
            "metavar": "HOST:PORT",
        },
    )
    redirect: bool = field(
        default=False, metadata={"help": "let nobody in and send all clients to server_reference for good"}
    )
    response_topic_prefix: str | None = field(
        default=None,
        metadata={
            "help": "an MQTT 5 client that asks for response information is told this with its client id behind it; "
            "none: nobody is told anything"
        },
    )
    deliver_missed_qos0: bool = field(
        default=False,
        metadata={
            "help": "a session that returns also gets what it would have got at QoS 0 while it was away"
        },
    )

    queue_expiry_s: int = setting(
        2_592_000,
        "30 days: how long a queue outlives the last session that has subscribed to it; 4294967295: without end",
        low=0,
        high=0xFFFFFFFF,
    )

    # Limits: of the server.
    user_share_percent: int = setting(
        50,
        "the part of connection_count, session_count, shared_count and other limits of the server that one user may "
        "have, in percent; without logins, one client id; 100: all of it",
        low=1,
        high=100,
    )
    connection_count: int = setting(
        10_000,
        "clients at a time; each takes a file descriptor and some KiB",
        low=1,
        heading="limits of the server",
    )
    connects_per_s: int = setting(
        1000,
        "clients let in each second in the long run, ten seconds' worth at once: a fleet may come back, and clients "
        "that connect again and again do not keep others out; 0: any number",
        low=0,
    )
    connect_timeout_ms: int = setting(
        10_000,
        "until a new connection has shaken hands and sent CONNECT; protects against those that never do",
        low=100,
    )
    connect_bytes: int = setting(
        128 * KIB,
        "the largest packet of a client that is not let in yet: anybody could make the server hold one",
        low=KIB,
        high=256 * MIB,
    )
    submitted_bytes: int = setting(
        64 * MIB,
        "publishes of all clients that the disk has not settled yet; above it publishers are not read from",
        low=KIB,
    )
    total_unsent_bytes: int = setting(
        256 * MIB,
        "deliveries waiting in memory for all slow clients together; above it those that have not read for the longest "
        "time are disconnected, and their sessions continue from where they are when they are back",
        low=KIB,
    )
    session_count: int = setting(
        1_000_000, "sessions, connected or not; about 1 KiB of memory each while not connected", low=1
    )

    retained_count: int = setting(
        100_000, "topics with a retained message; they are found by every new subscription", low=0
    )
    retained_bytes: int = setting(
        64 * MIB, "topics, properties and payloads of all retained messages, which are kept in memory", low=0
    )

    shared_count: int = setting(
        10_000, "shared subscriptions and queues, each counted once a log; they are saved together", low=0
    )

    # Limits: of one client.
    packet_bytes: int = setting(
        MIB,
        "the largest packet a client may send; an incomplete one is held in memory",
        low=128,
        high=256 * MIB,
        heading="limits of one client",
    )
    client_submitted_bytes: int = setting(
        256 * KIB,
        "publishes of one client that the disk has not settled yet; above it the client is not read from; what others "
        "publish waits behind it, and a disk that flushes slowly takes more from a client that may have more",
        low=KIB,
    )
    client_share_bytes_per_s: int = setting(
        4 * MIB,
        "what a client that publishes faster than it is settled gets at least while others publish, too; one of few "
        "gets more, one among its like as much as the disk takes",
        low=64 * KIB,
    )
    receive_maximum: int = setting(
        4096,
        "publishes of one MQTT 5 client that are not acknowledged, at QoS 2 not completed; more is a protocol error",
        low=1,
        high=65_535,
    )
    inflight_count: int = setting(
        1024,
        "unacknowledged deliveries to one client; an MQTT 5 client may ask for fewer",
        low=1,
        high=65_535,
    )
    unsent_bytes: int = setting(
        256 * KIB,
        "deliveries waiting in memory for a slow client; above it nothing more is read for it",
        low=KIB,
        high=1024 * MIB,
    )
    client_publishes_per_s: int = setting(
        0,
        "publishes of one client each second in the long run, ten seconds' worth at once; 0: as many as the disk "
        "takes, which slows the client down by TCP",
        low=0,
    )
    client_bytes_per_s: int = setting(0, "the same for the bytes of its publishes", low=0)
    client_requests_per_s: int = setting(
        4000,
        "PINGREQ, AUTH and topic filters in SUBSCRIBE and UNSUBSCRIBE of one client each second in the long run, ten "
        "seconds' worth at once: each is answered one by one; 0: any number",
        low=0,
    )
    packet_filter_count: int = setting(
        10_000,
        "topic filters in one SUBSCRIBE or UNSUBSCRIBE, which is answered once all of them are served",
        low=1,
    )
    client_topic_count: int = setting(
        100_000,
        "new topics that one user may bring into a log, which keeps them without end, in all its connections together; "
        "without logins, one client id",
        low=0,
    )
    subscription_count: int = setting(1000, "subscriptions of one client; each filters what it reads", low=1)
    topic_alias_maximum: int = setting(
        32, "topic aliases that one client may set on its publishes", low=0, high=65_535
    )
    delivery_alias_maximum: int = setting(
        128,
        "topic aliases for deliveries to one client, which may ask for fewer; about 200 bytes of memory each",
        low=0,
        high=65_535,
    )
    topic_levels: int = setting(
        128,
        "levels of a topic or filter; deep ones cost time to match and mean a mistake",
        low=1,
        high=65_536,
    )
    topic_bytes: int = setting(
        4096, "the longest topic or filter; logs and subscriptions keep them in memory", low=1, high=65_535
    )
    keep_alive_max_s: int = setting(
        0,
        "the longest keep alive that is accepted, also for clients that ask for none; MQTT 5 clients are told; "
        "0: whatever they ask for",
        low=0,
        high=65_535,
    )

    system_interval_s: int = setting(
        10, "how often subscribers of $SYS are told what has changed; 0: there is nothing under $SYS", low=0
    )

    # Performance.
    receive_bytes: int = setting(
        256 * KIB,
        "the receive buffer, one for all connections",
        low=4 * KIB,
        high=64 * MIB,
        heading="performance",
    )
    session_save_ms: int = setting(
        1000,
        "how often the offsets of sessions are saved; what was acknowledged since is sent again after a kill",
        low=10,
    )

    def __post_init__(self) -> None:
        # Strings are welcome where an enum is meant.
        if self.ack is not None:
            object.__setattr__(self, "ack", Ack(self.ack))
        Declared.__post_init__(self)
        validate_log_name(self.default_log)
        if self.listen is not None:
            parse_address(self.listen, setting="listen")
        if self.device_topics is not None:
            validate_filter(self.device_topics)
            if not {"%c", "%u"} & set(self.device_topics.split("/")):
                raise ValueError(f"device_topics is {self.device_topics}; expected a level %c or %u")
        if self.redirect and self.server_reference is None:
            raise ValueError("redirect needs server_reference: the server that clients are sent to")
        if not self.all_listeners:
            raise ValueError("listen is none and there are no listeners: no client could connect")
        for listener in self.all_listeners:
            self._check(listener)

    @property
    def all_listeners(self) -> tuple[ListenerSettings, ...]:
        """The plain one of `listen`, if there is one, then the tables."""
        plain = () if self.listen is None else (ListenerSettings(address=self.listen),)
        return plain + self.listeners

    @property
    def knows_users(self) -> bool:
        """Can clients prove who they are, on any listener?"""
        return self.authenticates or any(one.user_from != "login" for one in self.all_listeners)

    def lets_anonymous_in(self, listener: ListenerSettings) -> bool:
        """May clients that do not say who they are come in there?"""
        return self.anonymous_by_default if listener.allow_anonymous is None else listener.allow_anonymous

    @property
    def lets_any_anonymous_in(self) -> bool:
        """May clients that do not say who they are come in anywhere?"""
        return any(
            self.lets_anonymous_in(one) and not (one.require_certificate and one.user_from != "login")
            for one in self.all_listeners
        )

    def _check(self, listener: ListenerSettings) -> None:
        anonymous = self.lets_anonymous_in(listener)
        if anonymous and not (
            listener.is_local or listener.require_certificate or self.allow_anonymous_remote
        ):
            raise ValueError(
                f"listening on {listener.address} lets anyone who can reach it publish and read everything, because "
                "clients need not say who they are there; set allow_anonymous_remote = true if that is meant, give a "
                "password_file, or listen on 127.0.0.1"
            )
        if not anonymous and not self.authenticates and listener.user_from == "login":
            raise ValueError(
                f"no client could connect to {listener.address}: anonymous clients are refused, and there is no "
                "password_file, no jwt and no authenticator that could tell others"
            )
