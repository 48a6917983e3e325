"""The process a command runs in: signals, standard streams, version."""
