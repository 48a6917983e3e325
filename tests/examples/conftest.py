"""The one Spark session."""

from tests.support.spark import spark

__all__ = ["spark"]
