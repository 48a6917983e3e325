"""Scans by Spark of a bucket: of a log, and of Parquet files with the same rows.

Spark's own reader of object storage is not part of PySpark. The files are fetched by obstore, as many at a time as
Spark has tasks, and read from the page cache: what is measured is at least as fast as that reader."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import obstore

from pyspark_timestone.reading.store_view import fetched_folder
from pyspark_timestone.session import spark_session

from .uploads import LOG, RECORD_BYTES, Uploads, client

_CORES = 2
_COLUMNS = "log,partition,offset,timestamp,topic,value,flags"


class Scans:
    """The same rows twice in a bucket. Each row returns 10^6 bytes of records a second."""

    def __init__(self, directory: Path, uploads: Uploads) -> None:
        conf = {"spark.driver.memory": "2g"}
        self._spark = spark_session("timestone-bench", master=f"local[{_CORES}]", conf=conf)
        self._directory = directory
        self._numbers = count()
        self._size_bytes = uploads.record_count * RECORD_BYTES
        self._log = uploads.upload()
        parquet = directory / "parquet"
        self._records().write.parquet(str(parquet))
        self._client = client(uploads.target.new_url())
        self._names = [path.name for path in sorted(parquet.glob("*.parquet"))]
        for name in self._names:
            obstore.put(self._client, name, parquet / name)
        shutil.rmtree(parquet)

    def close(self) -> None:
        self._spark.stop()

    def log(self) -> float:
        """With all segments fetched, as the first scan of an application does."""
        # With master `local` the tasks have the driver's folder.
        shutil.rmtree(fetched_folder(), ignore_errors=True)
        return self.log_again()

    def log_again(self) -> float:
        """With the segments that an earlier scan of the application has fetched, if there was one."""
        start = time.perf_counter()
        self._scan(self._records())
        return self._size_bytes / (time.perf_counter() - start) / 1e6

    def parquet(self) -> float:
        start = time.perf_counter()
        folder = self._directory / f"fetched-{next(self._numbers)}"
        folder.mkdir()

        def fetch(name: str) -> None:
            (folder / name).write_bytes(obstore.get(self._client, name).bytes())

        with ThreadPoolExecutor(_CORES) as pool:
            list(pool.map(fetch, self._names))
        self._scan(self._spark.read.parquet(str(folder)))
        taken_s = time.perf_counter() - start
        shutil.rmtree(folder)
        return self._size_bytes / taken_s / 1e6

    def _records(self) -> Any:
        """Made again for each scan: Spark keeps the plan of a DataFrame, and planning is part of a scan."""
        options = {"columns": _COLUMNS, "subscribe": LOG}
        return self._spark.read.format("timestone").options(**options).load(self._log)

    @staticmethod
    def _scan(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()
