"""Will messages: kept with the session, published when the connection ends without DISCONNECT or the delay is over."""
