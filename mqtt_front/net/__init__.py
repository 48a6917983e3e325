"""Sockets and what stands between them and a connection: TLS, WebSocket, bulk reads, bounds on outbound buffers.

Read `client_protocol` first: the event loop's protocol object of one client.
"""
