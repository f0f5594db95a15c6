"""The verdicts that Spark's executors come to are those that one node comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.checkpoints.examination import examined
from holdfast.checkpoints.reachability import restores
from holdfast_spark.jobs import inventory, verify
from holdfast_spark.jobs.inventory_files import Inventory
from holdfast_spark.jobs.restore_judges import VERDICT, RestoreJudge
from holdfast_spark.stores import StoreAddress
from tests.spark.running import run
from tests.support.checkpoints.roots import Root
from tests.support.checkpoints.samples import sample
from tests.support.checkpoints.toy_format import WITH_TOY, toys
from tests.support.flink.changelog import LAST, WHOLE, job

pytestmark = pytest.mark.timeout(1800)

SPOILT = b"queries/a/state/0/0/9.zip"


def lay(directory: Path) -> None:
    """Write queries, jobs and toys, each with something missing or cut short; zeros for bytes that a sample lacks."""
    for place, name in (
        ("queries/a", "spark-rocksdb-1-changelog"),
        ("queries/b", "spark-rocksdb-2"),
        ("queries/c", "spark-hdfs"),
        ("flink", "flink-incremental"),
        ("merging", "flink-merging"),
    ):
        for path, file in sample(name).files.items():
            target = directory / place / path.decode()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bytes(file.size_bytes) if file.content is None else file.content)
    for path, (content, _) in toys().files.items():
        target = directory / path.decode()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for number, stored in enumerate((WHOLE, WHOLE[: -len(LAST)], WHOLE[:-1])):
        for name, content in job(stored, f"0a1b2c3d-4e5f-6789-abcd-ef012345678{number}").items():
            target = directory / "changelog" / (str(number) * 32) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    (directory / "queries/a/state/0/0/8.changelog").unlink()
    (directory / "queries/b/metadata").unlink()
    (directory / "toy/data/c").unlink()
    shared = sorted((directory / "flink").glob("checkpoints/*/shared/*"))
    shared[0].unlink()
    shared[-1].write_bytes(b"")


def test_the_same_verdicts_as_one_node_comes_to(spark: SparkSession, store_directory: Path, workspace: Path) -> None:
    lay(store_directory)
    url = f"file://{store_directory}"
    run(inventory, spark, url, workspace / "inventory")
    root = Root.of_directory(store_directory)
    expected = {
        (each.name.decode(), each.what, each.is_good, each.is_expired, each.is_newest)
        for each in examined(restores(root.listing(), spoilt={SPOILT}, formats=WITH_TOY), root.open)
    }
    assert [is_good for name, _, is_good, *_ in sorted(expected) if name.startswith("changelog/")] == [True, False, False]
    assert {is_good for _, _, is_good, _, _ in expected} == {True, False}
    judge = RestoreJudge(StoreAddress(url), "", frozenset({SPOILT}), WITH_TOY)
    rows = verify.verdicts(Inventory(spark, str(workspace / "inventory")).listed(""), judge).collect()
    assert {(row.name, row.what, not row.broken, row.is_expired, row.is_newest) for row in rows} == expected
    assert all(bool(row.because) == bool(row.broken) for row in rows)
    assert verify.main([url, str(workspace / "inventory"), "--root", "queries/a", "--table", str(workspace / "table")]) == 3
    assert spark.read.parquet(str(workspace / "table")).columns == list(VERDICT.columns)
    assert verify.main([url, str(workspace / "inventory"), "--root", "queries/b"]) == 4
