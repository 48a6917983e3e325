"""One file a command, named for it: its options, and the calls that do the work. No command imports another."""
