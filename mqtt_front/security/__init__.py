"""Authentication and authorisation of clients: passwords, tokens, certificates, access rules. Belongs here: every
decision about a client before it is trusted. Nothing here knows packets, sockets or the event loop; the rest of the
front uses `guard` only."""
