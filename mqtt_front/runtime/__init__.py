"""Event-loop support of the front: timers, clocks, a mailbox for other threads, token buckets, throttled logging.
Knows no MQTT. Read `loop` first."""
