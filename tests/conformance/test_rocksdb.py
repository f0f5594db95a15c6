"""RocksDB on the mount: its files in ``rocksdb/``, its checkpoints by hard link in ``localState/``, over restarts of all.

Two RocksDBs of different ages: the one in ``rocksdict``, in processes of their own, whose every key is compared; and that of
Debian's ``rocksdb-tools`` (``db_bench``, ``ldb``, ``sst_dump``), which check what they read themselves.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.daemons.node import Node
from tests.support.load import rocksdb_job

LAST = 9
ENTRIES = 100_000


@pytest.fixture
def workdir(node: Node) -> Path:
    path = node.work / "worker_1"
    path.mkdir()
    return path


def job(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.support.load.rocksdb_job", *map(str, arguments)]


def run(*command: object) -> str:
    output = subprocess.PIPE
    done = subprocess.run([str(word) for word in command], stdout=output, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def assert_holds(database: Path, generation: int, *options: str) -> None:
    """A process that opens the database finds all keys of the generation, and no others."""
    found = json.loads(run(*job(*options, "compare", database, generation)))
    assert found == {"keys": len(rocksdb_job.expected(generation)), "missing": 0, "wrong": 0, "too many": 0}


@contextmanager
def running_job(workdir: Path, first: int, last: int) -> Iterator[tuple[subprocess.Popen[str], Iterator[int]]]:
    """The job as a process, and the generations as it says that they are done."""
    with subprocess.Popen(
        job("run", workdir, first, last), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, (json.loads(line)["done"] for line in process.stdout)
        finally:
            process.kill()


def linked(first: Path, second: Path) -> set[str]:
    """Return the names that are one file in both directories."""
    return {path.name for path in first.iterdir() if (second / path.name).exists() and path.samefile(second / path.name)}


@pytest.mark.promise("local-rocksdb")
@pytest.mark.parametrize("io", rocksdb_job.IO_KINDS)
def test_checkpoints_by_hard_link_survive_process_and_daemon(workdir: Path, node: Node, io: str) -> None:
    database, state = workdir / "rocksdb/db", workdir / "localState"
    databases = [(state / f"chk_{LAST - 1}", LAST - 1), (state / f"chk_{LAST}", LAST), (database, LAST)]

    run(*job("--io", io, "run", workdir, 0, LAST))
    assert sorted(os.listdir(state)) == [f"chk_{LAST - 1}", f"chk_{LAST}"]
    run(*job("checkpoint", database, state / "chk_quiet"))
    databases.append((state / "chk_quiet", LAST))
    assert any(name.endswith(".sst") for name in linked(state / "chk_quiet", database))
    for path, generation in databases:
        assert_holds(path, generation, "--io", io)

    with node.client() as client:
        freed = [progress.bytes_done for progress in client.evict(str(state))]
    assert freed == [0], "the only copy there is can't be evicted"
    for stop in (node.stop, node.kill):
        stop()
        node.start()
        for path, generation in databases:
            assert_holds(path, generation, "--io", io)


@pytest.mark.promise("local-rocksdb")
def test_a_process_that_comes_back_links_its_state_again_and_goes_on(workdir: Path, node: Node) -> None:
    run(*job("run", workdir, 0, 4))
    with node.client() as client:
        client.release("worker", "1")
        client.acquire("worker", "1", os.getpid())
    assert os.listdir(workdir / "rocksdb") == []
    kept = workdir / "localState/chk_4"
    assert_holds(kept, 4)

    rocksdb_job.restore(kept, workdir / "rocksdb/db")
    assert linked(kept, workdir / "rocksdb/db")
    run(*job("run", workdir, 5, 5))
    assert_holds(workdir / "rocksdb/db", 5)
    assert_holds(workdir / "localState/chk_5", 5)
    assert_holds(kept, 4)


def test_what_was_synced_is_there_after_the_process_is_killed(workdir: Path) -> None:
    with running_job(workdir, 0, 1000) as (process, done):
        while (last := next(done)) < 3:
            pass
        process.kill()
        last = max([last, *done])
    assert_holds(workdir / f"localState/chk_{last}", last)
    shutil.rmtree(workdir / "localState")
    (workdir / "localState").mkdir()
    run(*job("run", workdir, last + 1, last + 1))  # over what the killed process has left behind
    assert_holds(workdir / f"localState/chk_{last + 1}", last + 1)


def test_what_was_synced_is_there_after_the_daemon_is_killed(workdir: Path, node: Node) -> None:
    with running_job(workdir, 0, 1000) as (process, done):
        while (last := next(done)) < 3:
            pass
        node.kill()
        process.kill()
        last = max([last, *done])
    node.start()
    assert_holds(workdir / f"localState/chk_{last}", last)


def test_a_checkpoint_in_the_store_is_read_after_eviction(workdir: Path, node: Node) -> None:
    run(*job("run", workdir, 0, 2))
    stored = node.checkpoints / "job" / "chk-2"
    shutil.copytree(workdir / "localState/chk_2", stored, copy_function=shutil.copyfile)
    with node.client() as client:
        for _ in client.evict(str(stored)):
            pass
    assert not list(node.backing(stored).glob("*.sst"))
    for io in rocksdb_job.IO_KINDS:
        assert_holds(stored, 2, "--io", io)


def bench(database: Path, *benchmarks: str) -> str:
    options = [
        f"--num={ENTRIES}",
        "--value_size=100",
        "--write_buffer_size=1048576",
        "--compression_type=none",
        "--reads=20000",
    ]
    return run("db_bench", f"--db={database}", "--use_existing_db=1", f"--benchmarks={','.join(benchmarks)}", *options)


def assert_all_are_found(output: str) -> None:
    found, asked = map(int, re.findall(r"\((\d+) of (\d+) found\)", output)[-1])
    assert found == asked > 0


def assert_intact(*databases: Path) -> None:
    """Debian's tools find the files consistent, all checksums right, and all keys."""
    for path in databases:
        run("ldb", f"--db={path}", "checkconsistency")
        assert f"Keys in range: {ENTRIES}\n" in run("ldb", f"--db={path}", "dump", "--count_only")
        checked = run(
            "sst_dump", f"--file={path}", "--command=check", "--verify_checksum"
        )  # it ends with 0 whatever it finds
        assert ".sst" in checked
        assert "Corruption" not in checked
        assert_all_are_found(bench(path, "readrandom"))


@pytest.mark.promise("local-rocksdb")
def test_debians_rocksdb_checks_its_own_files(workdir: Path, node: Node) -> None:
    database, checkpoint = workdir / "rocksdb/db", workdir / "localState/checkpoint"
    run("db_bench", f"--db={database}", f"--num={ENTRIES}", "--benchmarks=fillseq", "--compression_type=none")
    output = bench(database, "overwrite", "compact", "readwhilewriting", "readrandom")
    assert_all_are_found(output)
    run("ldb", f"--db={database}", "checkpoint", f"--checkpoint_dir={checkpoint}")
    assert linked(database, checkpoint)

    assert_intact(database, checkpoint)
    for stop in (node.stop, node.kill):
        stop()
        node.start()
        assert_intact(database, checkpoint)
