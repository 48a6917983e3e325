"""Logs of a server on another machine, over Arrow Flight (`option("flight", "HOST:PORT")`): what `reading` and
`writing` need of a store, asked of the server. Read `remote_store` first. Knows no file of a store."""
