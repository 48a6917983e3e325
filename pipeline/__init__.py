"""The telemetry pipeline that runs on Spark."""
