"""Records as bytes and columns: what a client asks for (`queries`), batches for it (`columns`) and from it (`intake`),
and their messages (`flight_data`). Knows no call and no event loop."""
