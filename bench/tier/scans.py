"""Scans by Spark of a bucket: of a log, of the same log compressed, and of Parquet files with the same rows.

Spark's own reader of object storage is not part of PySpark. The files are fetched by obstore, as many at a time as
Spark has tasks, and read from the page cache: what is measured is at least as fast as that reader."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import obstore

from pyspark_timestone.reading.store_view import fetched_folder
from pyspark_timestone.session import spark_session

from .uploads import LOG, RECORD_BYTES, Uploads, client

_CORES = 2
_COLUMNS = "log,partition,offset,timestamp,topic,value,flags"


class _Uploaded(NamedTuple):
    url: str
    id: int

    @classmethod
    def of(cls, uploads: Uploads) -> "_Uploaded":
        """Upload a log to stay."""
        return cls(uploads.upload(), uploads.store.log(LOG).id)


class Scans:
    """The same rows three times in a bucket. Each row returns 10^6 bytes of records a second."""

    def __init__(self, directory: Path, uploads: Uploads, compressed: Uploads) -> None:
        conf = {"spark.driver.memory": "2g"}
        self._spark = spark_session("timestone-bench", master=f"local[{_CORES}]", conf=conf)
        self._directory = directory
        self._numbers = count()
        self._size_bytes = uploads.record_count * RECORD_BYTES
        self._log, self._compressed = _Uploaded.of(uploads), _Uploaded.of(compressed)
        self._parquet = uploads.target.new_url()
        self._clear = uploads.target.clear
        parquet = directory / "parquet"
        self._records(self._log).write.parquet(str(parquet))
        self._client = client(self._parquet)
        self._names = [path.name for path in sorted(parquet.glob("*.parquet"))]
        for name in self._names:
            obstore.put(self._client, name, parquet / name)
        shutil.rmtree(parquet)

    def close(self) -> None:
        self._spark.stop()
        for url in (self._log.url, self._compressed.url, self._parquet):
            self._clear(url)

    def log(self) -> float:
        """With all segments fetched, as the first scan of an application does."""
        return self._first(self._log)

    def compressed(self) -> float:
        """The same with compressed segments."""
        return self._first(self._compressed)

    def log_again(self) -> float:
        """With the segments that an earlier scan of the application has fetched, if there was one."""
        return self._timed(self._log)

    def _first(self, log: "_Uploaded") -> float:
        # With master `local` the tasks have the driver's folder.
        for segment in (fetched_folder() / "segments").glob(f"{log.id:016x}-*"):
            shutil.rmtree(segment)
        return self._timed(log)

    def _timed(self, log: "_Uploaded") -> float:
        start = time.perf_counter()
        self._scan(self._records(log))
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

    def _records(self, log: "_Uploaded") -> Any:
        """Made again for each scan: Spark keeps the plan of a DataFrame, and planning is part of a scan."""
        options = {"columns": _COLUMNS, "subscribe": LOG}
        return self._spark.read.format("timestone").options(**options).load(log.url)

    @staticmethod
    def _scan(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()
