"""State fetched to a node before its partitions go there: a Spark job whose tasks read through the mount on that
node.

So it takes no port, no right that the job does not have, and nothing to be left in a store for others to find. There is
one task for each node: a second one would go to any node with a free core, where nobody wants the state. The tasks
need Holdfast in the executors' Python; without it the partitions fetch their state with their first task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.examination import Examination, examined
from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import FinishedBatch, StatePartition
from holdfast.checkpoints.plans import Listed

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

_PARALLEL = 4
_CHUNK_BYTES = 2**20
_DESCRIPTION = "holdfast: fetching state for nodes that have come"


def fetch_ahead(spark: SparkSession, location: Path, by_host: Mapping[str, Sequence[int]]) -> int:
    """Let each host read what its partitions of the query at ``location`` need; return the bytes read. Waits for it."""
    context: Any = spark.sparkContext
    context.setJobDescription(_DESCRIPTION)  # of this thread's jobs alone
    wishes = [((str(location), tuple(partitions)), host) for host, partitions in by_host.items()]
    rdd: Any = on_hosts(spark, wishes)
    return sum(rdd.mapPartitions(_read).collect())


def on_hosts(spark: SparkSession, items: Sequence[tuple[object, str]]) -> RDD[Any]:
    """Return an RDD with a partition for each item, which Spark runs on the item's host if it can."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    context: Any = spark.sparkContext
    jvm = context._jvm
    scala = jvm.org.apache.spark.api.python.PythonUtils
    pinned = [jvm.scala.Tuple2(pickle.dumps(item), scala.toSeq([host])) for item, host in items]
    made = context._jsc.sc().makeRDD(scala.toSeq(pinned), jvm.scala.reflect.ClassTag.AnyRef())
    return RDD(made.toJavaRDD(), context, CPickleSerializer())


def read_state(location: Path, partition: int) -> int:
    """Read the files that a query at ``location`` starts from, of one partition of all operators; return their bytes."""
    with ThreadPoolExecutor(_PARALLEL) as threads:
        return sum(threads.map(_bytes_of, files_to_read(location, partition)))


def begin_fetch(location: Path, partition: int) -> None:
    """Let the daemon begin to fetch these files; return when all have begun. It goes on by itself."""
    with ThreadPoolExecutor(_PARALLEL) as threads:
        for _ in threads.map(_opened, files_to_read(location, partition)):
            pass


def files_to_read(location: Path, partition: int) -> list[Path]:
    """Return the files that a query at ``location`` starts from, of one partition of all operators.

    There are none before its first batch has ended. Snapshots are opened for that: the daemon fetches what they name.
    """
    layout = FORMATS.locations[0]
    try:
        commits = [layout.state_of(b"commits/" + file.name.encode()) for file in (location / "commits").iterdir()]
    except FileNotFoundError:
        return []
    version = max((each.version for each in commits if isinstance(each, FinishedBatch)), default=0)
    listing = []
    for directory in (location / "state").glob(f"*/{partition}"):
        for file in directory.rglob("*"):
            name = str(file.relative_to(location)).encode()
            if isinstance(layout.state_of(name), StatePartition):
                listing.append(Listed(name, file.stat().st_size, 0))
    needed = examined(
        Examination(layout.state_to_read(b"", listing, version)), lambda name: (location / name.decode()).open("rb")
    )
    return [location / name.decode() for name in needed]


def _read(wishes: Iterator[tuple[str, tuple[int, ...]]]) -> Iterator[int]:
    for location, partitions in wishes:
        for partition in partitions:
            yield read_state(Path(location), partition)


def _bytes_of(file: Path) -> int:
    read = 0
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            read += len(chunk)
    return read


def _opened(file: Path) -> None:
    with file.open("rb"):
        return
