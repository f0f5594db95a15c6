"""Spark's errors of a second driver on a checkpoint, as they were seen, and what is made of them."""

from __future__ import annotations

import pytest

from holdfast_spark.second_driver_errors import explanation

_AT_THE_COMMIT = (
    "[STREAM_FAILED] Query [id = 18c8, runId = 8653] terminated with exception: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent "
    "update to the log. Multiple streaming jobs detected for 7.\n~WriteToMicroBatchDataSourceV1 ForeachBatchSink, 18c8, "
    "[queryName=flights, checkpointLocation=file:///mnt/holdfast/checkpoints/flights], Update"
)
_AT_THE_RENAME = "java.io.FileNotFoundException: /mnt/holdfast/checkpoints/flights/offsets/12 (File exists)"
_FOUND_BY_SPARK = (
    "org.apache.spark.SparkConcurrentModificationException: Multiple streaming queries are concurrently using "
    "file:/mnt/holdfast/checkpoints/flights/commits/3"
)


@pytest.mark.parametrize(
    ("error", "first_with"), [(_AT_THE_COMMIT, "batch 7"), (_AT_THE_RENAME, "offsets/12"), (_FOUND_BY_SPARK, "commits/3")]
)
def test_each_of_sparks_errors_becomes_the_same_sentence(error: str, first_with: str) -> None:
    sentence = explanation(error, "flights")
    assert sentence is not None
    assert "the query flights has ended: another driver" in sentence
    assert f"the same checkpoint /mnt/holdfast/checkpoints/flights, and was first with {first_with}." in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "error",
    ["", "java.io.FileNotFoundException: /data/out (File exists)", "FileAlreadyExistsException: Output directory s3a://b/c"],
)
def test_other_errors_are_left_alone(error: str) -> None:
    assert explanation(error, "flights") is None
