"""The `timestone` command: the composition root, the only place that knows every package.

One module a command, named for it. `main` finds and runs them; it is installed as `timestone_cli`.
"""
