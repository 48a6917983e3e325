"""Payloads that a library decodes one by one: rows of plain Python values into a struct array. Arrow builds the columns
of all rows at once. Only if one does not fit is each row checked individually."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pyspark_timestone.payload.formats import Decoded, spread

Row = dict[str, Any]
_MISFITS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)


class RowPayload:
    """Decodes with a function that makes a row of a payload, or raises one of `errors`."""

    def __init__(
        self, type: pa.StructType, decode: Callable[[bytes], Row], errors: tuple[type[Exception], ...]
    ) -> None:
        self._type = type
        self._decode = decode
        self._errors = errors

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode payloads; see PayloadFormat."""
        rows: dict[int, Row] = {}
        bad: dict[int, str] = {}
        for number, value in enumerate(values.to_pylist()):
            try:
                rows[number] = self._decode(value)
            except self._errors as error:
                bad[number] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return spread(self._made(rows, bad), bad, len(values))

    def _made(self, rows: dict[int, Row], bad: dict[int, str]) -> pa.StructArray:
        try:
            return pa.array(rows.values(), self._type)
        except _MISFITS:
            for number, row in list(rows.items()):
                try:
                    pa.array([row], self._type)
                except _MISFITS as error:
                    bad[number] = str(error)
                    del rows[number]
            return pa.array(rows.values(), self._type)
