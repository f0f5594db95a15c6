"""Inventories that somebody else has written: rows of nothing, columns of other types, files that are no Parquet."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.remote import UploadSource, is_private
from holdfast_spark.arrow_forms import OBJECTS
from holdfast_spark.jobs import inventory, orphans, scrub, usage
from holdfast_spark.jobs.inventory_files import Inventory
from holdfast_spark.stores import StoreAddress
from tests.spark.running import run

pytestmark = pytest.mark.timeout(1800)
PLANTED = [
    *("../up", "a/../../etc/passwd", "/root", "a//b", "./here", "a/.", "", "line\nbreak", "\x1b[2J", "nul\0"),
    None,
]


@pytest.fixture
def url(store_directory: Path) -> str:
    """A store with one object."""
    StoreAddress(f"file://{store_directory}").open().write("good", UploadSource(1, data=b"x"), {}, create_only=False)
    return f"file://{store_directory}"


@pytest.mark.promise("plans-confirmed")
def test_rows_that_describe_no_object_are_left_out(
    spark: SparkSession, url: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may write the inventory would have tasks fail, read elsewhere, or print escape sequences."""
    where = workspace / "inventory"
    run(inventory, spark, url, where)
    rows: list[tuple[object, ...]] = [(key, 1, 1, "etag", False) for key in PLANTED]
    rows += [("size", -1, 1, "etag", False), ("size", None, 1, "etag", False), ("time", 1, None, "etag", False)]
    rows += [("etag", 1, 1, None, False), ("kind", 1, 1, "etag", None)]
    spark.createDataFrame(rows, OBJECTS.ddl).write.mode("append").parquet(f"{where}/objects")
    keys = [row.key for row in Inventory(spark, str(where)).objects.collect()]
    assert [key for key in keys if not is_private(key)] == ["good"]
    run(orphans, spark, url, where, "--plans", workspace)
    run(usage, spark, where, "--report", workspace / "usage.html")
    run(scrub, spark, url, where, workspace / "results")
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.promise("plans-confirmed")
def test_what_is_no_inventory_is_refused_by_name(
    spark: SparkSession, url: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback of a hundred lines from an executor says nothing to who runs the job."""
    where, whole = workspace / "inventory", workspace / "whole"
    run(inventory, spark, url, whole)
    for part, column, other in (
        ("objects", "key", "binary"),
        ("objects", "size_bytes", "string"),
        ("objects", "is_directory", "string"),
        ("about", "began_ns", "string"),
    ):
        for each in ("objects", "about"):
            rows = spark.read.parquet(f"{whole}/{each}")
            changed = rows.withColumn(column, rows[column].cast(other)) if each == part else rows
            changed.write.mode("overwrite").parquet(f"{where}/{each}")
        assert orphans.main([url, str(where), "--plans", str(workspace)]) != 0
        assert f"its column {column} is {other}" in capsys.readouterr().err
    for file in (where / "about").glob("*.parquet"):
        file.write_bytes(b"PAR1" + bytes(1000) + b"PAR1")
    assert orphans.main([url, str(where), "--plans", str(workspace)]) != 0
    assert "Traceback" not in capsys.readouterr().err
