"""Sweeps of working directories: what dead processes have left goes, out of sight of the kernel too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.control.client import RefusedError
from holdfast.control.messages import SweepRequest
from tests.mount.test_checkpoint_hooks import execute
from tests.mount.test_command import holdfast
from tests.mount.test_workdirs import sleeper
from tests.support.checkpoints.checkpoint_roots import age
from tests.support.daemons.node import Node
from tests.unit.workdirs.test_workdir_garbage import BLOB, SUBTASK, UUID


def make_old(*paths: Path) -> None:
    """Let trees look as if nobody had touched them for two days."""
    for path in paths:
        for each in [*path.rglob("*"), path]:
            age(each, 2)


def left_behind(workdir: Path) -> list[Path]:
    """Make what a dead process leaves; return what of it a sweep takes."""
    dead = [workdir / f"spark/blockmgr-{UUID}", workdir / f"spark-{UUID}"]
    for directory in dead:
        (directory / "0c").mkdir(parents=True)
        (directory / "0c/shuffle_0_0_0.data").write_bytes(b"x" * 100)
    states = [workdir / SUBTASK / f"chk_{number}" for number in (7, 8)]
    for state in states:
        (state / "db").mkdir(parents=True)
        (state / "db/000001.sst").write_bytes(b"sst")
    incoming = workdir / "blobStorage/incoming/temp-00000000"
    incoming.parent.mkdir()
    incoming.write_bytes(b"half")
    make_old(*dead, *states, incoming)
    return [*dead, incoming]


def test_what_dead_processes_have_left_goes(node: Node) -> None:
    workdir = node.work / "worker_1"
    with node.client() as client, sleeper() as process:
        client.acquire("worker", "1", process.pid)
        garbage = left_behind(workdir)
        (workdir / f"tmp/spark-{UUID}").mkdir()
        (workdir / "slotAllocationSnapshots").mkdir()
        listed = {path: os.listdir(path) for path in {each.parent for each in garbage}}
        assert all(listed.values())
        plan = client.plan_sweep(SweepRequest(path=str(node.work)))
        assert {item.path for item in plan.items} == {str(path) for path in garbage}
        done = execute(client, plan)
    assert (done.state, done.removed, done.kind) == ("done", 3, "workdirs")
    for path in garbage:
        assert not path.exists()
        assert path.name not in os.listdir(path.parent)
    assert (workdir / f"tmp/spark-{UUID}").exists(), "it is young"
    assert (workdir / SUBTASK / "chk_7/db/000001.sst").read_bytes() == b"sst", "it was opened a moment ago"
    assert (workdir / "slotAllocationSnapshots").exists()
    assert node.wait_event("swept", what="workdirs")["removed"] == 3
    assert os.listdir(node.store / "trash") == []


def test_local_state_of_an_earlier_process_goes_but_the_newest(node: Node) -> None:
    workdir = node.work / "worker_1"
    with node.client() as client, sleeper() as process:
        client.acquire("worker", "1", process.pid)
        left_behind(workdir)
        for number in (7, 8):
            node.wait_digest(workdir / SUBTASK / f"chk_{number}/db/000001.sst")
        with (workdir / SUBTASK / "chk_7/db/000001.sst").open("rb"):
            plan = client.plan_sweep(SweepRequest(path=str(workdir), grace_seconds=0.0, abandoned_seconds=0.0))
            assert "old_local_state" not in plan.by_reason, "it is being restored"
        node.backing(workdir / SUBTASK / "chk_7/db/000001.sst")
        plan = client.plan_sweep(SweepRequest(path=str(workdir), grace_seconds=0.0, abandoned_seconds=0.0))
        assert plan.by_reason["old_local_state"] == 1
        execute(client, plan)
    assert os.listdir(workdir / SUBTASK) == ["chk_8"]
    assert (workdir / SUBTASK / "chk_8/db/000001.sst").read_bytes() == b"sst"


@pytest.mark.promise("fallback")
def test_a_blob_that_was_evicted_from_a_directory_made_here_is_fetched_again(node: Node) -> None:
    blob = node.work / "worker_1" / BLOB
    with node.client() as client, sleeper() as process:
        client.acquire("worker", "1", process.pid)
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"jar")
        node.backing(blob)
        assert [step.done for step in client.evict(str(blob))][-1] == 1
        assert blob.read_bytes() == b"jar"


def test_what_the_holder_has_made_stays_until_it_has_ended(node: Node) -> None:
    with node.client() as client, sleeper() as process:
        acquired_ns = int(client.acquire("worker", "1", process.pid).acquired * 10**9)
        made = node.work / f"worker_1/spark-{UUID}"
        made.mkdir()
        within_the_tick_ns = acquired_ns - 4_000_000
        os.utime(made, ns=(within_the_tick_ns, within_the_tick_ns))
        everything = SweepRequest(path=str(made.parent), grace_seconds=0.0, abandoned_seconds=0.0)
        assert client.plan_sweep(everything).items == []
        process.kill()
        process.wait()
        node.wait_event("workdir-released", path="work/worker_1")
        with (made / "file").open("wb"):
            assert client.plan_sweep(everything).items == [], "it is open"
        node.backing(made / "file")
        plan = client.plan_sweep(everything)
        assert [item.path for item in plan.items] == [str(made)]


def test_a_copy_of_a_blob_goes_and_can_be_fetched_again(node: Node) -> None:
    workdir = node.work / "worker_1"
    with node.client() as client:
        with sleeper() as process:
            client.acquire("worker", "1", process.pid)
            (workdir / BLOB).parent.mkdir(parents=True)
            (workdir / BLOB).write_bytes(b"jar")
            node.wait_digest(workdir / BLOB)
        node.wait_event("workdir-released", path="work/worker_1")
        plan = client.plan_sweep(SweepRequest(path=str(workdir), grace_seconds=0.0, abandoned_seconds=0.0))
        assert [item.reason for item in plan.items] == ["unused_blob"]
        execute(client, plan)
        assert not (node.store / "tree/work/worker_1" / BLOB).exists()
        with sleeper() as process:
            client.acquire("worker", "1", process.pid)
            assert (workdir / BLOB).read_bytes() == b"jar"


def test_a_plan_is_refused_when_a_process_came_back_to_it(node: Node) -> None:
    workdir = node.work / "worker_1"
    with node.client() as client, sleeper() as process:
        client.acquire("worker", "1", process.pid)
        (dead, *_) = left_behind(workdir)
        plan = client.plan_sweep(SweepRequest(path=str(workdir)))
        (dead / "again").write_bytes(b"x")
        with pytest.raises(RefusedError, match="the world has changed"):
            execute(client, plan)
        assert (dead / "again").exists()


def test_the_command_sweeps_working_directories_too(node: Node) -> None:
    with node.client() as client, sleeper() as process:
        client.acquire("worker", "1", process.pid)
        left_behind(node.work / "worker_1")
    said = holdfast("checkpoint", "sweep", "--yes", node.work, socket=node.socket)
    assert "directory of a process that has ended" in said
    assert "removed 3 entries, 204 B" in said
    refused = holdfast("checkpoint", "sweep", node.work / "worker_9", socket=node.socket, status=1)
    assert "is no working directory" in refused
