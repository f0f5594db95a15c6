"""A query keeps the format of its checkpoint, whichever the session asks for; a new one gets the session's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.checkpoints.formats.spark.names import STATE_OF_A_VERSION, SparkName, parse_spark
from holdfast_spark.state_settings import fit_format_to_provider, state_settings
from tests.data.checkpoints.make_spark import Sample
from tests.support.spark.trials import Laid, restart

STATE_STORE = "spark.sql.streaming.stateStore."
PROVIDER = f"{STATE_STORE}providerClass"


def formats_of(checkpoint: Path) -> Iterator[tuple[int, int]]:
    """Yield version and format of each state file."""
    for path in checkpoint.rglob("*"):
        name = parse_spark(bytes(path.relative_to(checkpoint)))
        if isinstance(name, SparkName) and name.kind in STATE_OF_A_VERSION and not name.layers:
            yield name.number or 0, 2 if name.is_format_2 else 1


@pytest.mark.parametrize(
    ("name", "began_in", "asked_for"),
    [("rocksdb-1-changelog", 1, 2), ("rocksdb-2-changelog", 2, 1), ("hdfs", 1, 2)],
)
def test_a_query_goes_on_in_the_format_that_it_began_in(
    spark: SparkSession, workspace: Path, name: str, began_in: int, asked_for: int
) -> None:
    laid = Laid(f"spark-{name}", workspace / "laid")
    laid.sample = replace(laid.sample, checkpoint_format=asked_for, provider=Sample.provider)
    before = max(version for version, _ in formats_of(laid.checkpoint))
    for more in range(2):  # the second start reads what the first one wrote
        laid.arrive(more)
        outcome = restart(spark, laid, laid.checkpoint)
        assert not outcome.problem
        assert outcome.answer == laid.batch_answer(spark)
    new = {version: number for version, number in formats_of(laid.checkpoint) if version > before}
    assert set(new.values()) == {began_in}
    assert len(new) >= 2


@pytest.mark.parametrize(("provider", "number"), [("RocksDBStateStoreProvider", "2"), ("HDFSBackedStateStoreProvider", "1")])
def test_a_session_begins_queries_in_a_format_that_its_provider_has(spark: SparkSession, provider: str, number: str) -> None:
    session = spark.newSession()
    for key, value in state_settings().items():
        if key.startswith("spark.sql."):
            session.conf.set(key, value)
    session.conf.set(PROVIDER, state_settings()[PROVIDER].rpartition(".")[0] + f".{provider}")
    fit_format_to_provider(session)
    assert session.conf.get(f"{STATE_STORE}checkpointFormatVersion") == number
