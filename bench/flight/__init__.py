"""Arrow Flight beside what else moves records: `command` measures, `bare_server` is Flight without a log behind it."""
