"""``holdfast.Checkpoint`` in a mount, and the example of the pages: nothing is sent twice, a lost disk is made good."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from holdfast import ControlClient, Job
from holdfast.control.messages import CheckpointInfo, SweepRequest
from holdfast.errors import WriteOnceError
from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory
from tests.mount.test_checkpoint_hooks import execute
from tests.support.checkpoints.checkpoint_roots import age
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.s3 import Versitygw

EXAMPLE = Path(__file__).parents[2] / "docs/examples/word_count.py"
EVERY = 20


def workdir_of(node: Node, resource_id: str = "1") -> Path:
    """Acquire a working directory for this process."""
    with node.client() as client:
        return Path(client.acquire("counter", resource_id, os.getpid()).path)


def write(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


def test_a_checkpoint_is_linked_here_and_whole_in_the_store(node: Node, remote_files: Path) -> None:
    workdir = workdir_of(node)
    job = Job(workdir, "counter")
    sst = write(workdir / "rocksdb/1.sst", b"one" * 1000)
    with job.begin() as checkpoint:
        shared = checkpoint.add_shared(sst)
        checkpoint.add_exclusive(write(workdir / "rocksdb/MANIFEST", b"names"))
        checkpoint.commit()
    assert (workdir / "localState/counter" / shared.name).samefile(sst)
    assert (remote_files / "counter" / shared.name).read_bytes() == b"one" * 1000
    assert (remote_files / "counter/chk-1/_metadata").exists()
    assert not list(remote_files.rglob("*.tmp"))
    assert not list(remote_files.rglob("*inprogress*"))


def test_a_lost_disk_is_made_good_from_the_store(make_node: NodeFactory) -> None:
    node = make_node().start()
    job = Job(workdir_of(node), "counter")
    with job.begin() as checkpoint:
        checkpoint.add_shared(write(node.work / "counter_1/rocksdb/1.sst", b"one"))
        checkpoint.add_exclusive(write(node.work / "counter_1/rocksdb/MANIFEST", b"names"))
        checkpoint.commit()
    node.stop()
    node.lose_disk()
    node.start()
    workdir = workdir_of(node)
    newest = Job(workdir, "counter").newest()
    assert newest is not None
    newest.restore(workdir / "rocksdb/db")
    assert (workdir / "rocksdb/db/1.sst").read_bytes() == b"one"
    assert (workdir / "rocksdb/db/MANIFEST").read_bytes() == b"names"
    (shared,) = [file for file in newest.files if file.path == "1.sst"]
    assert (workdir / "rocksdb/db/1.sst").samefile(workdir / "localState/counter" / shared.name)


def test_a_restored_file_can_be_written_where_it_belongs_to_one_checkpoint(node: Node) -> None:
    workdir = workdir_of(node)
    job = Job(workdir, "counter")
    with job.begin() as checkpoint:
        checkpoint.add_exclusive(write(workdir / "rocksdb/MANIFEST", b"names"))
        checkpoint.commit()
    for number in (1, 2):
        checkpoint.restore(workdir / f"rocksdb/db{number}")
        with (workdir / f"rocksdb/db{number}/MANIFEST").open("ab") as manifest:
            manifest.write(b" and more")
    assert (workdir / "rocksdb/db2/MANIFEST").read_bytes() == b"names and more"


def test_shared_files_are_sent_once(make_s3_node: S3NodeFactory, counted: Versitygw) -> None:
    node = make_s3_node(counted).start()
    workdir = workdir_of(node)
    job = Job(workdir, "counter")
    for number in range(3):
        counted.clear_log()
        write(workdir / f"rocksdb/{number}.sst", b"%d" % number * 1000)
        with job.begin() as checkpoint:
            for sst in sorted((workdir / "rocksdb").glob("*.sst")):
                checkpoint.add_shared(sst)
            checkpoint.commit()
        assert counted.requests()["PutObject"] == 2, "the new file and the metadata"


def test_of_two_processes_that_commit_the_same_number_one_wins(make_node: NodeFactory) -> None:
    jobs = [Job(workdir_of(make_node(name).start()), "counter") for name in "ab"]
    outcomes: list[str] = []
    ready = threading.Barrier(2)

    def commit(job: Job) -> None:
        checkpoint = job.begin()
        checkpoint.add_exclusive(write(job.local.parent.parent / "rocksdb/x", job.local.parts[-5].encode()))
        ready.wait()
        try:
            checkpoint.commit()
            outcomes.append("won")
        except WriteOnceError:
            checkpoint.abort()
            outcomes.append("lost")

    threads = [threading.Thread(target=commit, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost", "won"]
    for index, job in enumerate(jobs):
        (checkpoint,) = Job(job.local.parent.parent, "counter").all()
        checkpoint.restore(job.local.parent.parent / f"rocksdb/out{index}")


def test_a_sweep_takes_what_a_dead_process_has_sent_and_nothing_else(node: Node, remote_files: Path) -> None:
    workdir = workdir_of(node)
    job = Job(workdir, "counter")
    with job.begin() as checkpoint:
        checkpoint.add_shared(write(workdir / "rocksdb/1.sst", b"one"))
        checkpoint.commit()
    dead = job.begin()
    dead.add_shared(write(workdir / "rocksdb/2.sst", b"two"))
    dead._send(dead.files[0])
    for path in [*remote_files.rglob("*")]:
        age(path, 9)
    age(remote_files / "counter/chk-1/_metadata", 8)
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints)))
        assert [item.path for item in plan.items] == [str(node.checkpoints / "counter" / dead.files[0].name)]
        execute(client, plan)
    assert Job(workdir, "counter").all()[0].files == checkpoint.files
    checkpoint.restore(workdir / "rocksdb/db")


# --- the example of the pages -----------------------------------------------------------------------------------------


@pytest.fixture
def text(workspace: Path) -> Path:
    file = workspace / "text"
    file.write_text("\n".join(f"every line has a number {number} {number % 7}" for number in range(5 * EVERY + 3)))
    return file


def run_example(workdir: Path, text: Path) -> str:
    command = [sys.executable, str(EXAMPLE), str(workdir), str(text), "--checkpoint-every", str(EVERY)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def checkpoints(client: ControlClient, path: str) -> list[CheckpointInfo]:
    return [each for each in client.checkpoints(path) if each.what == "checkpoint"]


def expected(text: Path) -> str:
    words = Counter(text.read_text().split())
    return f"{words.total()} words, {len(words)} different ones"


def die_after(workdir: Path, text: Path, checkpoint: int) -> None:
    """Run the example, and kill it as soon as it says that it has taken this checkpoint."""
    command = [sys.executable, "-u", str(EXAMPLE), str(workdir), str(text), "--checkpoint-every", str(EVERY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(f"checkpoint {checkpoint}:"):
                process.send_signal(signal.SIGKILL)
                break


def test_the_example_counts_on_after_its_process_has_died(node: Node, text: Path) -> None:
    workdir = workdir_of(node)
    die_after(workdir, text, 2)
    said = run_example(workdir, text)
    assert re.search(r"^restored checkpoint [2345], \d+ files$", said, re.MULTILINE)
    assert expected(text) in said
    assert len(Job(workdir, "word-count").all()) == 3


def test_the_example_counts_on_after_its_disk_is_lost(make_node: NodeFactory, text: Path) -> None:
    node = make_node().start()
    die_after(workdir_of(node), text, 3)
    node.stop()
    node.lose_disk()
    node.start()
    said = run_example(workdir_of(node), text)
    assert said.startswith("restored checkpoint ")
    assert expected(text) in said


def test_the_example_keeps_its_newest_checkpoints(node: Node, text: Path) -> None:
    workdir = workdir_of(node)
    said = run_example(workdir, text)
    assert len(re.findall(r"^checkpoint \d+: \d+ files, \d+ bytes sent$", said, re.MULTILINE)) == 5
    assert expected(text) in said
    with ControlClient(node.socket) as client:  # deletions are held back for a moment
        path = str(node.checkpoints / "word-count")
        wait_until(lambda: [Path(each.path).name for each in checkpoints(client, path)] == ["chk-3", "chk-4", "chk-5"])


def test_the_example_sends_what_is_new_only(node: Node, text: Path) -> None:
    text.write_text("\n".join(text.read_text().splitlines()[: 2 * EVERY]))  # so few that RocksDB compacts nothing
    workdir = workdir_of(node)
    run_example(workdir, text)
    first, second = (
        {file.name for file in each.files if file.path.endswith(".sst")} for each in Job(workdir, "word-count").all()
    )
    assert first < second
