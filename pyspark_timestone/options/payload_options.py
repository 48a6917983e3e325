"""The options about payloads: format, schema, and what becomes of bad records."""

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.option_text import OptionText
from pyspark_timestone.payload.formats import FORMATS, POLICIES, PayloadOptions

OPTIONS = ("payload", "payloadSchema", "payloadMessage", "badRecords", "dlqPath")


def payload_options(texts: OptionText) -> PayloadOptions | None:
    """Return the options for decoding payloads; None without decoding. Raises InvalidOption."""
    if "payload" not in texts:
        for name in OPTIONS:
            if name in texts:
                raise InvalidOption(
                    f"invalid {name}: expected payload ({' or '.join(FORMATS)}) beside it, got none"
                )
        return None
    form = texts.one_of("payload", {name: name for name in FORMATS}, default="")
    if not texts.get("payloadSchema", "").strip():
        raise InvalidOption(f"invalid payloadSchema: expected the schema for payload={form}, got none")
    if form == "protobuf" and not texts.get("payloadMessage"):
        raise InvalidOption("invalid payloadMessage: expected the full name of a message, got none")
    bad_records = texts.one_of("badRecords", {name: name for name in POLICIES}, default="fail")
    if "dlqPath" in texts and bad_records != "dlq":
        raise InvalidOption(f"invalid dlqPath: expected badRecords=dlq beside it, got {bad_records}")
    if "dlqPath" not in texts and bad_records == "dlq":
        raise InvalidOption("invalid dlqPath: expected the folder for bad records, got none")
    return PayloadOptions(
        format=form,
        schema=texts["payloadSchema"].strip(),
        message=texts.get("payloadMessage", ""),
        bad_records=bad_records,
        dead_letters=texts.folder("dlqPath") if "dlqPath" in texts else None,
    )
