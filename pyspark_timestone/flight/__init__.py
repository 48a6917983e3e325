"""Logs of a server on another machine, read over Arrow Flight (`option("flight", "HOST:PORT")`). Read `client` first,
which plans by the endpoints of the server. Knows no store and no file of one."""
