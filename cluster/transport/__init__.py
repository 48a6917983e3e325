"""Between nodes: `links` are the connections, `wire` their bytes."""
