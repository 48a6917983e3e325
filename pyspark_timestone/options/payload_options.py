"""The options about payloads: format, schema, and what becomes of bad records."""

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.option_text import OptionText
from pyspark_timestone.payload.formats import FORMATS, POLICIES, PayloadOptions

OPTIONS = ("payload", "payloadSchema", "payloadMessage", "badRecords", "dlqPath")


def payload_options(texts: OptionText) -> PayloadOptions | None:
    """What is to be done with payloads; None for nothing. Raises InvalidOption."""
    if "payload" not in texts:
        for name in OPTIONS:
            if name in texts:
                raise InvalidOption(f"{name} means nothing without payload: {', '.join(FORMATS)}")
        return None
    form = texts.one_of("payload", {name: name for name in FORMATS}, default="")
    if not texts.get("payloadSchema", "").strip():
        raise InvalidOption(f"payload={form} needs payloadSchema")
    if form == "protobuf" and not texts.get("payloadMessage"):
        raise InvalidOption("payload=protobuf needs payloadMessage, the full name of the message")
    bad_records = texts.one_of("badRecords", {name: name for name in POLICIES}, default="fail")
    if ("dlqPath" in texts) != (bad_records == "dlq"):
        raise InvalidOption("badRecords=dlq and dlqPath, the folder for what is bad, belong together")
    return PayloadOptions(
        format=form,
        schema=texts["payloadSchema"].strip(),
        message=texts.get("payloadMessage", ""),
        bad_records=bad_records,
        dead_letters=texts.folder("dlqPath") if "dlqPath" in texts else None,
    )
