"""A store with everything in it that a sweep knows: what real engines have left, histories, and planted garbage."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.support.checkpoints import samples
from tests.support.checkpoints.checkpoint_roots import age, job, put
from tests.support.checkpoints.roots import Root
from tests.support.spark import files as spark_files
from tests.support.spark.history import Query, Shape

UUID = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"
_SHAPES = [
    Shape("rocksdb", 1, True, ("",), 2, 3),
    Shape("rocksdb", 2, True, ("", "right"), 2, 3),
    Shape("rocksdb", 2, False, ("",), 3, 2),
    Shape("hdfs", 1, True, ("",), 2, 3),
]


def write(root: Root, directory: Path) -> None:
    """Write a root as files with its times, which are long ago."""
    for name, (content, mtime_ns) in root.files.items():
        file = directory / os.fsdecode(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(mtime_ns, mtime_ns))
    for name, mtime_ns in sorted(root.directories.items(), reverse=True):
        below = directory / os.fsdecode(name)
        below.mkdir(parents=True, exist_ok=True)
        os.utime(below, ns=(mtime_ns, mtime_ns))


def history(shape: Shape, seed: int, steps: int = 25) -> Root:
    """Let a query run, fail, and be restarted, by chance."""
    chance = random.Random(seed)
    query = Query(shape)
    for _ in range(steps):
        if not query.is_running:
            query.restart()
        query.run(chance.choice((0, 0, 1, 2)), commits=chance.random() < 0.9)
        if query.is_running and chance.random() < 0.5:
            query.maintain()
        if chance.random() < 0.3:
            query.purge()
        query.root.now_ns += 10**9
    return query.root


def fill(directory: Path) -> None:
    """Write the store: what can be judged below ``good/``, and beside it metadata that can't be read, and staged objects."""
    good = directory / "good"
    for name in samples.names():
        write(Root.of_sample(samples.sample(name)), good / name)
    for number, shape in enumerate(_SHAPES):
        write(history(shape, number), good / f"history-{number}")
    _plant_late_versions(good)
    for name in samples.names():
        if name.startswith("spark-rocksdb"):
            _plant_in_a_query(good / name)
    _plant_outside(good)
    put(directory / "bad" / ("d" * 32) / "chk-1/_metadata", b"no metadata", age_days=20)
    put(directory / ".holdfast" / ("c" * 32), age_days=20)
    put(directory / ".holdfast/sweep-12", age_days=20)


def _plant_in_a_query(location: Path) -> None:
    store = location / "state/0/0"
    put(store / f"SSTs/000099-{UUID}.sst", age_days=20)
    put(store / f"logs/000099-{UUID}.log", age_days=20)
    put(store / f".7.changelog.{UUID}.TID3.tmp", age_days=20)
    put(store / f"..7.changelog.{UUID}.TID3.tmp.crc", age_days=20)
    put(store / ".900.zip.crc", age_days=20)
    put(store / "900.zip.crc", age_days=20)
    put(store / f".901.zip.{UUID}.tmp")
    put(location / "state/0/1/1.zip", b"no zip at all", age_days=20)
    put(location / "notes/metadata", age_days=20)


def _plant_late_versions(directory: Path) -> None:
    """Put files of versions there that their queries have expired long ago."""
    put(directory / "history-0/q/state/0/0/1.zip", age_days=20)
    put(directory / "history-0/q/state/0/0/1.changelog", age_days=20)
    put(directory / f"history-1/q/state/0/0/1_{UUID}.zip", age_days=20)
    put(directory / f"history-1/q/state/0/0/15_{UUID}.changelog", age_days=20)
    put(directory / "history-3/q/state/0/0/1.delta", age_days=20)


def _plant_outside(directory: Path) -> None:
    job(directory / "own" / ("a" * 32), orphans=3)
    job(directory / "young" / ("b" * 32))
    put(directory / "young" / ("b" * 32) / "shared" / ("9" * 32))
    unreadable = directory / "sinks/out/_spark_metadata"
    put(unreadable / "0", b"v1\n", age_days=20)
    put(unreadable / f".1.{UUID}.tmp", age_days=20)
    put(unreadable / ".0.crc", age_days=20)
    put(unreadable / ".7.crc", age_days=20)
    put(directory / "sinks/out/part-0.parquet", age_days=20)
    put(directory / "sinks/_metadata", b"PAR1 of another program", age_days=20)
    segments = directory / "own" / ("a" * 32) / f"shared/job_x_op_y_0_1/{UUID}"
    put(segments, age_days=20)
    put(directory / "own" / ("a" * 32) / f"chk-9/._metadata.inprogress.{UUID}", age_days=20)
    for empty in ("chk-2", "chk-4", "shared/job_x_op_y_1_1"):
        path = directory / "own" / ("a" * 32) / empty
        path.mkdir(parents=True, exist_ok=True)
        age(path, 30)
    put(directory / "nested/offsets/3", age_days=20)
    put(directory / "nested/metadata", age_days=20)
    put(directory / "nested/inner/commits/5", spark_files.commit(), age_days=20)
    put(directory / "nested/inner/metadata", age_days=20)
    put(directory / f"nested/inner/state/0/0/SSTs/1-{UUID}.sst", age_days=20)
    put(directory / f"nested/state/0/0/SSTs/1-{UUID}.sst", age_days=20)
