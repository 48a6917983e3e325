"""Regular expressions of Java, which `subscribePattern` takes in Spark's Kafka source, as Python's.

The names of logs are ASCII, so a class of Unicode is its ASCII part. Syntax that both languages have passes unchanged.
What neither Python nor this module knows is left as it is, and `re.compile` refuses it.
"""

import re

_LETTERS, _DIGITS, _PUNCTUATION = "a-zA-Z", "0-9", "!-/:-@\\[-`{-~"
_CLASSES = {
    "lower": "a-z", "ll": "a-z", "lowercase": "a-z",
    "upper": "A-Z", "lu": "A-Z", "uppercase": "A-Z",
    "alpha": _LETTERS, "l": _LETTERS, "alphabetic": _LETTERS, "letter": _LETTERS,
    "digit": _DIGITS, "n": _DIGITS, "nd": _DIGITS,
    "alnum": _LETTERS + _DIGITS, "xdigit": "0-9a-fA-F", "hex_digit": "0-9a-fA-F",
    "punct": _PUNCTUATION, "p": _PUNCTUATION, "punctuation": _PUNCTUATION,
    "graph": "!-~", "print": " -~", "ascii": "\\x00-\\x7f",
}  # fmt: skip
"""`\\p{Lower}`, `\\p{javaLowerCase}`, `\\p{IsLowercase}`, `\\p{Ll}`, in lower case and without what stands before."""

_PROPERTY = re.compile(r"\\([pP])(?:\{(?:java|Is|general_category=|gc=)?([A-Za-z_]+)\}|([A-Z]))")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|0[0-7]{1,3}|.)", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_REFERENCE = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")


def python_pattern(java: str) -> str:
    """Return the pattern for `re.compile(…, re.ASCII)` that matches what `java` matches in Java. Raises re.error."""
    return _Translation(java).pattern()


class _Translation:
    def __init__(self, java: str) -> None:
        self._java = java
        self._at = 0

    def pattern(self) -> str:
        parts = []
        while self._at < len(self._java):
            if self._take("\\Q"):
                parts.append(re.escape(self._quoted()))
            elif self._take("["):
                parts.append(self._class())
            elif (found := self._found(_NAMED_GROUP)) is not None:
                parts.append("(?P<")
            elif (found := self._found(_REFERENCE)) is not None:
                parts.append(f"(?P={found[1]})")
            elif (found := self._found(_PROPERTY)) is not None:
                parts.append(self._property(found))
            elif self._take("\\z"):
                parts.append("\\Z")
            else:
                found = self._found(_ESCAPE)
                parts.append(self._next() if found is None else found[0])
        return "".join(parts)

    def _class(self) -> str:
        """Return the pattern of one character for a class, whose `[` is behind. In Java it may hold classes, and
        `&&` between those that a character has to be in."""
        negated = self._take("^")
        intersection: list[str] = []
        union: list[str] = []
        members = ""
        begin = self._at
        while not (self._at > begin and self._take("]")):
            if self._take("&&"):
                intersection.append(_any_of(union, members))
                union, members = [], ""
            elif self._take("["):
                union.append(self._class())
            elif (found := self._found(_PROPERTY)) is not None:
                union.append(self._property(found))
            elif self._take("\\Q"):
                members += re.escape(self._quoted())
            else:
                members += self._member()
        if not intersection and not union:
            return f"[{'^' if negated else ''}{members}]"
        intersection.append(_any_of(union, members))
        looks = "".join(f"(?={one})" for one in intersection)
        return f"(?:(?!{looks})[\\s\\S])" if negated else f"(?:{looks}[\\s\\S])"

    def _member(self) -> str:
        """Return a character of a class, or a range."""
        first = self._character()
        following = self._java[self._at + 1 : self._at + 2]
        if self._java[self._at : self._at + 1] == "-" and following not in ("", "]", "["):
            self._at += 1
            return f"{first}-{self._character()}"
        return first

    def _character(self) -> str:
        found = self._found(_ESCAPE)
        # Python warns of characters that may have a meaning in a class one day.
        return re.escape(self._next()) if found is None else found[0]

    def _property(self, found: re.Match[str]) -> str:
        name = found[2] or found[3]
        members = _CLASSES.get(name.lower())
        if members is None:
            raise re.error(f"unknown class {found[0]}", self._java, found.start())
        return f"[{'^' if found[1] == 'P' else ''}{members}]"

    def _quoted(self) -> str:
        text, _, rest = self._java[self._at :].partition("\\E")
        self._at = len(self._java) - len(rest)
        return text

    def _found(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._java, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _take(self, text: str) -> bool:
        taken = self._java.startswith(text, self._at)
        self._at += len(text) if taken else 0
        return taken

    def _next(self) -> str:
        if self._at >= len(self._java):
            raise re.error("unterminated character set", self._java, self._at)
        self._at += 1
        return self._java[self._at - 1]


def _any_of(union: list[str], members: str) -> str:
    parts = [*union, f"[{members}]"] if members else union
    return f"(?:{'|'.join(parts)})"
