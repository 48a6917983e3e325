"""Who may do what, for all fronts: users, secrets, certificates, lockout, rights on logs. Belongs here: every decision
about a client before it is trusted. Nothing here knows a protocol, a socket or an event loop. Read `admission` first,
then `logins`; `access_file` has the rights."""
