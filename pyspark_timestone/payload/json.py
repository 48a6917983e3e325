"""Payloads that are JSON objects, parsed a batch at a time by Arrow.

Strict: a payload is one object, and each of its fields in the schema has the type of the schema, or is null or
missing. A number that its type cannot hold is invalid, and so are infinity and NaN, which JSON does not have. Fields
that are not in the schema are ignored. Times are cut to microseconds, and to the day where the schema has a date.

All payloads of a batch are parsed as one text, one a line. Rows cannot shift between payloads, even malicious ones:
each payload has to begin and end with a brace. Within an object that is still open, a closing brace is followed by a
comma or another closing, never by an opening brace, so an incomplete payload is an error, and a complete one makes at
least one row. When there are as many rows as payloads, each payload has made exactly one."""

import json
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.types import StructType

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.ddl import check_ddl
from pyspark_timestone.payload.formats import Decoded, PayloadOptions, spread

_OPEN, _CLOSE = ord("{"), ord("}")
_CHUNK = 512
"""Where a batch has bad payloads, it is parsed in pieces: those without bad ones are done at once."""
_ROW = re.compile(r" in row (\d+)$")
_NANOSECONDS = re.compile(r"couldn't parse:.*\.\d{7,9}(?!\d)")
"""The parser stopped at a time with more digits than a microsecond has. Go writes nine."""


def spark_type(options: PayloadOptions) -> StructType | str:
    """Return the fields: Spark's DDL as it is, for Spark to read, or the JSON of a StructType. Raises InvalidOption."""
    try:
        if options.schema.startswith("{"):
            return StructType.fromJson(json.loads(options.schema))
        check_ddl(options.schema)
        return options.schema
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        raise InvalidOption(
            f"invalid payloadSchema: expected a DDL string or JSON schema, got {options.schema!r:.100}: {reason}"
        ) from None


def payload_format(options: PayloadOptions, type: pa.StructType) -> "JsonPayload":
    """Return the decoder. Raises InvalidOption for types that Arrow does not read from JSON."""
    return JsonPayload(type)


class JsonPayload:
    """JSON objects into a struct type."""

    def __init__(self, type: pa.StructType) -> None:
        """Raises InvalidOption."""
        self._type = type
        self._cast = pc.CastOptions(type, allow_time_truncate=True)
        # To the nanosecond there is no time after 2262.
        self._parsed, self._parsed_finer = _parsed(type, "us"), _parsed(type, "ns")
        try:
            self._parse(pa.array([b"{}"], pa.binary()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidOption(
                f"invalid payloadSchema: expected types that are read from JSON, got another: {error}"
            ) from None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """See PayloadFormat."""
        good, bad = _objects(values)
        whole = values.take(pa.array(good)) if bad else values
        try:
            return spread(self._parse(whole), bad, len(values))
        except (pa.ArrowInvalid, ValueError):
            made = []
            for first in range(0, len(whole), _CHUNK):
                made += self._pieces(whole.slice(first, _CHUNK), good[first : first + _CHUNK], bad)
            return spread(pa.concat_arrays(made or [pa.array([], self._type)]), bad, len(values))

    def _pieces(
        self, values: pa.BinaryArray, numbers: npt.NDArray[np.int64], bad: dict[int, str]
    ) -> list[pa.StructArray]:
        """Return the rows of the good payloads, in order, and note the bad ones. Takes out the payload that the parser
        names; where it names none, parses each half."""
        while len(values):
            try:
                return [self._parse(values)]
            except (pa.ArrowInvalid, ValueError) as error:
                if len(values) == 1:
                    bad[int(numbers[0])] = _reason(error)
                    return []
                suspect = self._suspect(values, error)
            if suspect is None:
                half = len(values) // 2
                return [
                    *self._pieces(values.slice(0, half), numbers[:half], bad),
                    *self._pieces(values.slice(half), numbers[half:], bad),
                ]
            number, reason = suspect
            bad[int(numbers[number])] = reason
            kept = np.delete(np.arange(len(values)), number)
            values, numbers = values.take(pa.array(kept)), numbers[kept]
        return []

    def _suspect(self, values: pa.BinaryArray, error: Exception) -> tuple[int, str] | None:
        """Return the payload at which the parser stopped, and the reason; None if it is another one."""
        named = _ROW.search(str(error))
        number = int(named[1]) if named else len(values)
        if number >= len(values):
            return None
        try:
            self._parse(values.slice(number, 1))
        except (pa.ArrowInvalid, ValueError) as reason:
            return number, _reason(reason)
        return None

    def _parse(self, values: pa.BinaryArray) -> pa.StructArray:
        """Return the rows of payloads that all begin with a brace. Raises ArrowInvalid or ValueError when one is
        bad."""
        try:
            return self._parse_as(self._parsed, values)
        except pa.ArrowInvalid as error:
            if not _NANOSECONDS.search(str(error)):
                raise
            try:
                return self._parse_as(self._parsed_finer, values)
            except (pa.ArrowInvalid, ValueError):
                raise error from None

    def _parse_as(self, parsed: pa.StructType, values: pa.BinaryArray) -> pa.StructArray:
        # Arrow trusts the bytes of JSON strings; the check costs little beside the parser.
        values.cast(pa.string())
        lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        text = pc.binary_join(lines, b"\n")[0].as_buffer()
        # One block, or Arrow would cut the text at a line end, which may be inside a payload.
        read = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
        schema = pj.ParseOptions(explicit_schema=pa.schema(list(parsed)), unexpected_field_behavior="ignore")
        table = pj.read_json(pa.BufferReader(text), read_options=read, parse_options=schema)
        if table.num_rows != len(values):
            raise ValueError("more than one JSON object")
        columns = [table.column(field.name).combine_chunks() for field in parsed]
        columns = [one.chunk(0) if isinstance(one, pa.ChunkedArray) else one for one in columns]
        for field, column in zip(parsed, columns, strict=True):
            _check_finite(column, field.name, flat=True)
        made = pa.StructArray.from_arrays(columns, fields=list(parsed))
        return made if parsed == self._type else pc.cast(made, options=self._cast)


def _parsed(kind: pa.DataType, unit: str) -> pa.DataType:
    """Return the type that Arrow parses for a column: a time in `unit`, and a date as one, because of a date it knows
    only the number."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed(field.type, unit)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed(kind.value_type, unit)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp(unit, kind.tz)
    return pa.timestamp(unit) if pa.types.is_date(kind) else kind


def _check_finite(column: pa.Array, name: str, *, flat: bool) -> None:
    """Raise ValueError for a number that is too large for its type, and for NaN and Infinity, which JSON does not have:
    Arrow accepts them all. flat: the column has a value for each row, so the error can name the row."""
    if pa.types.is_floating(column.type):
        finite = pc.is_finite(column)
        if pc.all(finite).as_py() is False:
            number = pc.index(finite, False).as_py()
            value = "not a number" if pc.is_nan(column[number]).as_py() else "too large"
            raise ValueError(f"{name} is {value} for {column.type}" + (f" in row {number}" if flat else ""))
    elif pa.types.is_struct(column.type):
        for number, field in enumerate(column.type):
            _check_finite(column.field(number), f"{name}/{field.name}", flat=flat)
    elif pa.types.is_list(column.type):
        _check_finite(column.values, name, flat=False)


def _objects(values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Return the numbers of the payloads that begin and end like an object, and the reasons for the others."""
    _, positions_buffer, data_buffer = values.buffers()
    positions = np.frombuffer(positions_buffer, np.int32, len(values) + 1, 4 * values.offset)
    fit = np.diff(positions) >= len(b"{}")
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)
        filled = np.flatnonzero(fit)
        fit[filled] = (data[positions[filled]] == _OPEN) & (data[positions[filled + 1] - 1] == _CLOSE)
    bad: dict[int, str] = {}
    for number in np.flatnonzero(~fit).tolist():
        # Blanks around it are legal, and rare enough to be looked for here.
        stripped = values[number].as_py().strip(b" \t\r\n")
        if stripped[:1] == b"{" and stripped[-1:] == b"}":
            fit[number] = True
        else:
            bad[number] = "no JSON object" if stripped else "empty"
    return np.flatnonzero(fit), bad


def _reason(error: Exception) -> str:
    """Return the message of the parser without its row number, which counts within a piece of the batch."""
    return _ROW.sub("", str(error).removeprefix("JSON parse error: "))
