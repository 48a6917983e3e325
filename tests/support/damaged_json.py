"""Damaged JSON documents, for tests of code that reads one from the disk."""

DAMAGED_JSON = {
    "nothing": b"",
    "no JSON": b"hello",
    "cut short": b'{"version": 1, "a',
    "a list": b"[1, 2]",
    "a text": b'"x"',
    "a number": b"5",
    "null": b"null",
    "no UTF-8": b'{"a": "\xff"}',
    "beyond all numbers": b'{"a": 1e400}',
    "beyond 64 bits": b'{"a": 1%s}' % (b"0" * 400),
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "a deep list": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}
"""Damage by its name."""
