"""The `timestone` command: the composition root, the only place that knows every package.

`main` has the table of commands and runs them; `commands/` has one module for each. Installed as `timestone_cli`.
"""
