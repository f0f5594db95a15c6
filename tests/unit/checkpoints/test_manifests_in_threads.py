"""Manifests are read by several threads at once, from the very first one on."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_PROGRAM = """
import io, sys, threading
from holdfast.checkpoints.formats.own import read_own_metadata
from holdfast.checkpoints.formats.spark.batch_log import read_spark_commit, read_spark_offsets

sys.setswitchinterval(1e-6)
texts = [
    (read_own_metadata, b'{"holdfast": 1, "checkpoint": 7, "files": []}'),
    (read_spark_commit, b'v2\\n{"stateUniqueIds": {}}'),
    (read_spark_offsets, b'v1\\n{"conf": {}}'),
]
everybody = threading.Barrier(8)

def read(number):
    for reader, text in texts:
        everybody.wait()
        found[number].append(reader(io.BytesIO(text), len(text)))

found = [[] for _ in range(8)]
threads = [threading.Thread(target=read, args=[number]) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(each == found[0] and len(each) == len(texts) for each in found), found
print(*(type(result).__name__ for result in found[0]))
"""


def test_threads_that_read_the_first_manifest_together() -> None:
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == ["OwnMetadata", "SparkCommit", "SparkOffsets"]
