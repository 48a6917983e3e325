"""Who may come in, and what they may do then: passwords, tokens, certificates, access rules.

Belongs here: everything that decides about a client before it is believed. Nothing here knows packets, sockets or the
event loop; `guard` is the one module that the rest of the front talks to.
"""
