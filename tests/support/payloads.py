"""Payload options and types for tests of the decoders."""

from typing import Any

import pyarrow as pa

from pyspark_timestone.options.option_text import OptionText
from pyspark_timestone.options.payload_options import OPTIONS, payload_options
from pyspark_timestone.payload.formats import Decoded, PayloadFormat, PayloadOptions

TELEMETRY = pa.struct(
    [
        pa.field("device", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("temperature", pa.float64()),
    ]
)


def options_of(**given: str) -> PayloadOptions:
    options = payload_options(OptionText(given, OPTIONS))
    assert options is not None
    return options


def decoded(form: PayloadFormat, payloads: list[bytes]) -> Decoded:
    return form.decode(pa.array(payloads, pa.binary()))


def rows(form: PayloadFormat, payloads: list[bytes]) -> list[Any]:
    """Return the decoded payloads; for a bad one its reason."""
    found = decoded(form, payloads)
    assert len(found.values) == len(payloads)
    assert [row is None for row in found.values.to_pylist()] == [n in found.bad for n in range(len(payloads))]
    return [found.bad.get(number, row) for number, row in enumerate(found.values.to_pylist())]
