"""The Spark data source: `spark.read.format("timestone")`."""
