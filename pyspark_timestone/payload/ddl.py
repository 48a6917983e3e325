"""Check of a schema in Spark's DDL before Spark reads it, with an error that names the option and the place. Spark's
own error quotes the schema of all columns, which is not what the user wrote."""

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"""\s*(`(?:[^`]|``)+`|\w+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|$)""")
_NAME = re.compile(r"`.+`|\w+", re.DOTALL)
_SIMPLE = {
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double",
    "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "binary", "decimal", "dec", "numeric",
}  # fmt: skip
_UNDECODED = {"char", "character", "varchar", "interval", "time", "variant", "void", "geometry", "geography"}
"""Types of Spark for which `check_type` has an error of its own."""


def check_ddl(text: str) -> None:
    """Raise ValueError, with what is wrong and where, unless `text` is a list of fields and their types."""
    tokens = _Tokens(text)
    _fields(tokens, "")


class _Tokens:
    """Tokens of a schema, one at a time."""

    def __init__(self, text: str) -> None:
        self._waiting = _tokens(text)
        self.next = next(self._waiting)
        """Empty at the end."""

    def take(self) -> str:
        taken = self.next
        self.next = next(self._waiting, "")
        return taken

    def take_if(self, *words: str) -> bool:
        """Take the next token if it is one of `words`."""
        found = self.next.lower() in words
        if found:
            self.take()
        return found

    def expect(self, what: str, *words: str) -> None:
        if not self.take_if(*words):
            raise ValueError(f"expected {what}, found {self.next or 'the end'}")


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"unexpected {text[position:].strip():.20}")
        yield found[1]
        if not found[1]:
            return
        position = found.end()


def _fields(tokens: _Tokens, end: str) -> None:
    while True:
        name = tokens.take()
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected the name of a field, found {name or 'the end'}")
        tokens.take_if(":")
        _type(tokens, name)
        if tokens.take_if("not"):
            tokens.expect("NULL after NOT", "null")
        if tokens.take_if("comment"):
            tokens.take()
        if tokens.take_if(end):
            return
        tokens.expect(f"a comma after field {name}", ",")


def _type(tokens: _Tokens, name: str) -> None:
    kind = tokens.take()
    match kind.lower():
        case "array":
            tokens.expect("< after array", "<")
            _type(tokens, name)
            tokens.expect("> after the type in array", ">")
        case "map":
            tokens.expect("< after map", "<")
            _type(tokens, name)
            tokens.expect("a comma after the type of the keys", ",")
            _type(tokens, name)
            tokens.expect("> after the types in map", ">")
        case "struct":
            tokens.expect("< after struct", "<")
            if not tokens.take_if(">"):
                _fields(tokens, ">")
        case word if word in _SIMPLE or word in _UNDECODED:
            if tokens.take_if("("):
                while not tokens.take_if(")"):
                    if not tokens.take():
                        raise ValueError(f"expected ) after the type of field {name}, found the end")
            elif word == "string" and tokens.take_if("collate"):
                tokens.take()
            elif word == "interval":
                while tokens.take_if("year", "month", "day", "hour", "minute", "second", "to"):
                    pass
        case _:
            raise ValueError(f"field {name} has type {kind or 'nothing'}, which is not a type of Spark")
