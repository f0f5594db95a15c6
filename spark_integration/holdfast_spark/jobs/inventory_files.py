"""An inventory as it lies there: ``objects/``, what the store held, and ``about/``, one row on the whole, written last.

Both are Parquet, on any file system that Spark knows. Without ``about/`` an inventory is not complete: a job that was cut
off leaves none, so that its part is not taken for the whole. Others may be able to write there: columns of other types are
refused, and rows that describe no object are left out. No job believes an inventory before it deletes or reads: a daemon
lists the store once more, and an object is read by the version that the row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.errors import ConfigurationError
from holdfast_spark.arrow_forms import OBJECTS
from holdfast_spark.datasource import register
from holdfast_spark.stores import StoreAddress

_ABOUT = {"store": "string", "prefix": "string", "began_ns": "bigint"}
_COUNTS = ("objects", "directories", "size_bytes")
_NO_KEY = r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f]"
"""The pattern of names that are no keys: an empty part, ``.`` or ``..``, or a control character
(``holdfast.remote.keys``)."""
OBJECTS_PER_FILE = 10_000
"""The number of objects in one file. A scrub that is cut off repeats no more than one file of an inventory."""


class About(NamedTuple):
    """The summary of an inventory of what is below ``prefix`` of ``store``.

    ``began_ns`` is when the listing was begun, by the store's clock.
    """

    store: str
    prefix: str
    began_ns: int
    objects: int
    directories: int
    size_bytes: int


class Inventory:
    """An inventory that is complete. Raises ``ConfigurationError`` when there is none at ``path``."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/")
        self._spark = spark
        try:
            about = spark.read.parquet(f"{self.path}/about").select(*About._fields)
            _check_types(path, about, {**_ABOUT, **dict.fromkeys(_COUNTS, "bigint")})
            row = about.first()
        except AnalysisException:
            row = None
        if row is None:
            raise ConfigurationError(
                f"{path}: there is no complete inventory; 'python -m holdfast_spark.jobs.inventory STORE {path}' makes one"
            )
        self.about = About(*row)

    def check_store(self, url: str) -> None:
        """Raise ``ConfigurationError`` when this is an inventory of another store than ``url``."""
        if url != self.about.store:
            raise ConfigurationError(f"{self.path} is an inventory of {self.about.store}, not of {url}")

    @property
    def objects(self) -> DataFrame:
        """The objects of the store: ``arrow_forms.OBJECTS``. Raises ``ConfigurationError`` for rows of another form."""
        try:
            found = self._spark.read.parquet(f"{self.path}/objects")
        except AnalysisException as problem:
            raise ConfigurationError(f"{self.path}/objects can't be read as Parquet: {problem.getCondition()}") from None
        _check_types(self.path, found, OBJECTS.columns)
        return described(found)

    def listed(self, root: str) -> DataFrame:
        """Return what lay below ``root``: ``arrow_forms.LISTED``. Raises ``ConfigurationError`` when that was not listed."""
        if root != self.about.prefix and not f"{root}/".startswith(f"{self.about.prefix}/" if self.about.prefix else ""):
            raise ConfigurationError(f"{self.path} is of {self.about.prefix}/ only, and {root or 'the whole store'} is more")
        below = self.objects.where(f.col("key").startswith(f"{root}/")) if root else self.objects
        began_ns = f.lit(self.about.began_ns)  # what the store has no time of never grows old
        return below.select(
            f.substring("key", len(root) + 2 if root else 1, 2**31 - 1).alias("name"),
            "size_bytes",
            f.when(f.col("modified_ns") == 0, began_ns).otherwise(f.col("modified_ns")).alias("mtime_ns"),
            "etag",
            "is_directory",
        )


def described(objects: DataFrame) -> DataFrame:
    """Return those rows of ``OBJECTS`` that can describe an object or a directory."""
    return objects.select(*OBJECTS.columns).dropna().where(~f.col("key").rlike(_NO_KEY) & (f.col("size_bytes") >= 0))


def _check_types(path: str, found: DataFrame, wanted: Mapping[str, str]) -> None:
    there = dict(found.dtypes)
    for name, kind in wanted.items():
        if there.get(name) != kind:
            is_there = there.get(name, "missing")
            raise ConfigurationError(f"{path} is no inventory: its column {name} is {is_there}, not {kind}")


def take(spark: SparkSession, address: StoreAddress, prefix: str, path: str, parts: int) -> Inventory:
    """List what lies below ``prefix`` of a store, in about ``parts`` tasks. ``path`` must not exist yet.

    Raises ``HoldfastError`` when the store does not answer, ``ConfigurationError`` when something is at ``path``.
    """
    path = path.rstrip("/")
    store = address.open()
    began_ns = store.now_ns()
    register(spark)
    options = {f"store.{name}": value for name, value in address.options.items()}
    reader = spark.read.format("holdfast").option("store", address.url).option("prefix", prefix).option("parts", parts)
    try:
        reader.options(**options).load().write.option("maxRecordsPerFile", OBJECTS_PER_FILE).parquet(f"{path}/objects")
    except AnalysisException as problem:
        if "PATH_ALREADY_EXISTS" not in str(problem):
            raise
        raise ConfigurationError(f"{path} holds something already; name a directory that is not there yet") from None
    is_directory = f.col("is_directory")
    counts = spark.read.parquet(f"{path}/objects").select(
        f.lit(store.url).alias("store"),
        f.lit(prefix).alias("prefix"),
        f.lit(began_ns).alias("began_ns"),
        f.count_if(~is_directory).alias("objects"),
        f.count_if(is_directory).alias("directories"),
        f.coalesce(f.sum("size_bytes"), f.lit(0)).alias("size_bytes"),
    )
    counts.coalesce(1).write.parquet(f"{path}/about")
    return Inventory(spark, path)
