"""Options for a Java that runs for seconds."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""The second compiler never pays off for a few rows: without it the tests take half the processor time. A heap of a few
megabytes needs no collector with separate threads."""
