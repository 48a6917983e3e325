"""What the front needs of an event loop: timers, clocks, a mailbox for other threads, token buckets, throttled logging.

Knows no MQTT. Read `loop` first.
"""
