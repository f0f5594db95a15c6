"""Verify against Spark: what it says can be restored is restored with the right state, and nothing else is.

``./run python -m tests.histories.restarts`` tries each file of each sample; here are some of each kind.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.checkpoints.damages import Damage
from tests.support.spark.damages import trial
from tests.support.spark.trials import Laid, answers

NEWEST = None
DAMAGES: dict[str, list[tuple[str, str, int | None, bool]]] = {
    "spark-rocksdb-1-changelog": [
        ("metadata", "missing", NEWEST, False),
        ("offsets/7", "missing", NEWEST, False),
        ("offsets/8", "cut", NEWEST, False),
        ("commits/8", "missing", NEWEST, True),  # the batch is run again
        ("commits/7", "empty", NEWEST, True),
        ("commits/7", "missing", 7, True),
        ("sources/0/8", "missing", NEWEST, False),
        ("state/0/0/9.zip", "cut", NEWEST, True),  # by an older one
        ("state/0/0/8.changelog", "cut", NEWEST, True),
        ("state/0/0/8.changelog", "cut", 7, False),
        ("state/0/0/SSTs/000022-*", "missing", NEWEST, True),
        ("state/0/0/SSTs/000008-*", "cut", NEWEST, False),
        ("state/0/0/_metadata/schema", "cut", NEWEST, False),
        ("state/0/0/9.changelog", "flipped", NEWEST, True),
        ("state/0/0/7.changelog", "flipped", 6, False),
    ],
    "spark-rocksdb-2-changelog": [
        ("commits/11", "missing", NEWEST, True),
        ("commits/9", "missing", 9, True),
        ("state/0/0/12_*.zip", "missing", NEWEST, True),
        ("state/0/0/12_*.zip", "flipped", NEWEST, False),  # in format 2 an older one will do only if all changes are there
        ("state/0/0/12_*.zip.crc", "cut", NEWEST, False),
        ("state/0/0/10_*.changelog", "missing", 10, False),
    ],
    "spark-join-2": [
        ("state/0/0/left-keyToNumValues/7_*.zip", "flipped", NEWEST, True),
        ("state/0/0/right-keyToNumValues/8_*.changelog", "missing", NEWEST, False),
    ],
}


@pytest.mark.parametrize("name", DAMAGES)
def test_spark_restores_what_verify_says_and_nothing_else(spark: SparkSession, workspace: Path, name: str) -> None:
    laid = Laid(name, workspace / "laid")
    laid.arrive()
    scratch = workspace / "trial"
    newest = max(int(path.name) for path in laid.checkpoint.glob("commits/[0-9]*"))
    right = answers(spark, laid, scratch, {newest, *(batch for *_, batch, _ in DAMAGES[name] if batch is not None)})
    for pattern, kind, batch, can in DAMAGES[name]:
        (file,) = laid.checkpoint.glob(pattern)
        damage = Damage(str(file.relative_to(laid.checkpoint)), kind)
        found = trial(spark, laid, scratch, damage, batch, right[newest if batch is None else batch])
        assert (found.is_right, found.agrees) == (can, True), found
