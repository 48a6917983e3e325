"""Users with passwords: the password file, the hashes in it, and the SCRAM exchange.

Knows neither access rules nor connections. Read `password_file` first, then `password_hash`: which hashes there are.
"""
