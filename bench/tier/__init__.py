"""The benchmark of tiering: `timestone bench tier`.

`s3_server` is a server with the S3 interface on this machine. `uploads` has the rows of uploads and of appends beside
them, `scans` those of Spark, and `command` runs them in turn. Read `command` first.
"""
