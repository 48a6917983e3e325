"""One handler a packet: CONNECT, AUTH, PUBLISH, SUBSCRIBE and UNSUBSCRIBE, acknowledgements. A handler decides the
answer to its packet and calls the part that does the work."""
