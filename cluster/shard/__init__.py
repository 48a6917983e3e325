"""One replica of one shard at work, against the engine. Read `shard` first, which does what the protocol asks for;
`shipping` sends records, and says what it needs of its node; `flushes` and `repair` use the disk beside the loop."""
