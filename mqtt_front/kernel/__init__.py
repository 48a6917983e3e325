"""Per-message loops of the front, compiled or in Python, and the fast path for plain publishes. No I/O except
reading and writing sockets in bulk. Read `loops` first: it chooses the implementation."""
