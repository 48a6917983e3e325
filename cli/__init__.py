"""The `timestone` command."""
