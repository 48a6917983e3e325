"""Gateway: the process that clients of the front connect to. It reads the records of a DoGet from the files, over a
view of the store, and forwards every other call to the server, so that a reader at full speed does not take the
interpreter lock of the server. `process` (in the server) starts it, `main` runs it, `relay` forwards calls, `reads` has
DoGet, `wire` what both sides know. Knows no login, right or limit of a user: the server admits every call."""
