"""One call of the API: path, role, query, reply and the function that answers it."""

import typing
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from ..config import Role
from ..http.sessions import Session
from ..problems import Problem
from ..sources import Sources

PREFIX = "/api/v1"
FORMAT, FORMATS = "format", ("json", "csv")
"""Parameter of a call whose reply is a table, and its values."""
Handler = Callable[[Sources, Session, Any], Any]


class Reply(NamedTuple):
    """Reply that is not JSON."""

    content: bytes
    media_type: str
    file_name: str
    headers: Mapping[str, str] = MappingProxyType({})


class Route(NamedTuple):
    """A call. The types of its query and its reply are those that the function declares."""

    method: Literal["GET", "POST"]
    path: str
    """Below `PREFIX`; a part in braces is a field of the query."""
    role: Role
    """Least role of a caller."""
    handler: Handler
    kind: Literal["json", "bytes", "stream"] = "json"
    rows: str = ""
    """Field of the reply that is a table: the parameter `format=csv` asks for it alone."""

    @property
    def name(self) -> str:
        """Return the name of the operation."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """Return what it does, in a sentence."""
        return " ".join((self.handler.__doc__ or "").split("\n\n")[0].split())

    @property
    def query(self) -> type[msgspec.Struct]:
        """Return the type of the query, or of the body of a POST."""
        found: type[msgspec.Struct] = self._types["query"]
        return found

    @property
    def reply(self) -> Any:
        """Return the type of the reply."""
        return self._types["return"]

    def format(self, pairs: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
        """Return the format that a GET asks for, and its other parameters. Raises Problem."""
        if not self.rows:
            return "json", list(pairs)
        asked = [text for name, text in pairs if name == FORMAT]
        if len(asked) > 1 or not set(asked) <= set(FORMATS):
            raise Problem("invalid-request", f"invalid {FORMAT}: expected one of {', '.join(FORMATS)}")
        return asked[0] if asked else "json", [pair for pair in pairs if pair[0] != FORMAT]

    @property
    def _types(self) -> dict[str, Any]:
        return typing.get_type_hints(self.handler, include_extras=True)

    def parse(self, pairs: Sequence[tuple[str, str]], path: Mapping[str, str]) -> msgspec.Struct:
        """Return the query of a GET. Raises Problem."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(self.query)}
        values: dict[str, Any] = dict(path)
        for name, text in pairs:
            field = fields.get(name)
            if field is None or name in path:
                expected = ", ".join(one for one in fields if one not in path) or "none"
                raise Problem("invalid-request", f"unknown parameter {name!r:.60}: expected {expected}")
            if typing.get_origin(_bare(field.type)) is tuple:
                values.setdefault(name, []).append(text)
            elif name in values:
                raise Problem("invalid-request", f"the parameter {name!r} is there twice")
            else:
                values[name] = text
        return self._converted(values, strict=False)

    def parse_body(self, body: bytes) -> msgspec.Struct:
        """Return the body of a POST. Raises Problem."""
        try:
            values = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise Problem("invalid-request", "the body is not JSON") from None
        return self._converted(values, strict=True)

    def _converted(self, values: Any, *, strict: bool) -> msgspec.Struct:
        try:
            return msgspec.convert(values, self.query, strict=strict)
        except (msgspec.ValidationError, RecursionError) as error:
            raise Problem("invalid-request", str(error)) from None


def _bare(annotation: Any) -> Any:
    """Return a type without its metadata."""
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation
