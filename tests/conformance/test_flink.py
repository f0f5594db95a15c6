"""A real Flink with checkpoints on the mount: metadata is read as Flink reads it, a sweep takes garbage and nothing else.

The job, which checks its own state, goes on from what is retained: on another node, and under other claim modes.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.checkpoints.formats.flink import FlinkMetadata, read_flink_metadata
from holdfast.checkpoints.references import ReferenceKind
from holdfast.control.messages import PlanInfo, SweepRequest
from tests.conftest import NodeFactory
from tests.support.checkpoints.checkpoint_roots import below, put
from tests.support.daemons.node import Node, wait_until
from tests.support.flink.real_flink import Counting, Flink

BACKENDS = {
    "rocksdb": {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
    "hashmap": {"state.backend.type": "hashmap"},
}
UNCOMPACTED = {"state.backend.rocksdb.compaction.style": "NONE"}
"""Else RocksDB replaces files of an earlier checkpoint whenever it has four of them."""
RETAINED = 2
MANY = 50
KINDS = {
    ReferenceKind.FILE: "file",
    ReferenceKind.SEGMENT: "segment",
    ReferenceKind.DIRECTORY: "directory",
    ReferenceKind.RELATIVE: "relative",
}


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Flink:
    return Flink(tmp_path_factory.mktemp("flink"))


class Cluster:
    """The counting job on a node: each run is a process that is killed at its end."""

    def __init__(self, flink: Flink, backend: str, **more: str) -> None:
        self._flink = flink
        self._settings = {
            **BACKENDS[backend],
            **more,
            "execution.checkpointing.interval": "700ms",
            "execution.checkpointing.data-inline-threshold": "0",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "none",
        }

    @contextmanager
    def run(
        self, node: Node, *, start: Path | None = None, claim: str = "NO_CLAIM", retained: int = RETAINED
    ) -> Iterator[Counting]:
        settings = {**self._settings, "execution.checkpointing.dir": f"file://{node.checkpoints}"}
        settings["execution.checkpointing.num-retained"] = str(retained)
        if start is not None:
            settings["execution.state-recovery.path"] = f"file://{start}"
            settings["execution.state-recovery.claim-mode"] = claim
        with self._flink.counting(settings) as job:
            yield job


def complete(job: Path) -> list[Path]:
    """The complete checkpoints of a job, oldest first."""
    found = [path for path in job.glob("chk-*") if (path / "_metadata").exists()]
    return sorted(found, key=lambda path: int(path.name[4:]))


def wait_checkpoints(job: Path, above: int) -> None:
    """Wait until a checkpoint above the given number is complete."""

    def is_so() -> bool:
        there = complete(job)
        return bool(there) and int(there[-1].name[4:]) > above

    wait_until(is_so)


def jobs(node: Node) -> set[Path]:
    return {path for path in node.checkpoints.iterdir() if len(path.name) == 32}


def sweep(node: Node) -> list[PlanInfo]:
    """Sweep until nothing is left to go: by the store's clock a file may be too young for even no grace at all."""
    request = SweepRequest(path=str(node.checkpoints), grace_seconds=0, abandoned_seconds=0)
    done: list[PlanInfo] = []

    def is_swept() -> bool:
        plan = client.plan_sweep(request)
        for _ in client.execute(plan.id):
            pass
        done.append(client.plan(plan.id))
        return plan.count == 0

    with node.client() as client:
        wait_until(is_swept)
    assert all(plan.kept == [] for plan in done)
    return done


def plant(job: Path) -> set[Path]:
    """Leave what a Flink leaves that dies or is late: files that nobody names or that expired, half a metadata."""
    return {
        put(job / "shared" / str(uuid.uuid4()), b"s" * 1000),
        put(job / "chk-1" / str(uuid.uuid4()), b"late"),
        put(complete(job)[-1] / str(uuid.uuid4()), b"of an attempt that lost"),
        put(complete(job)[-1] / f"._metadata.inprogress.{uuid.uuid4()}", b"half"),
    }


def reached(metadata: Path) -> set[str]:
    """The last components of all that a metadata refers to, as Holdfast reads it."""
    data = metadata.read_bytes()
    found = read_flink_metadata(io.BytesIO(data), len(data))
    assert isinstance(found, FlinkMetadata), found
    return {f"{KINDS[reference.kind]} {reference.path.decode()}" for reference in found.references}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_job_goes_on_from_every_retained_checkpoint_after_a_sweep(
    flink: Flink, make_node: NodeFactory, remote_files: Path, backend: str
) -> None:
    cluster, node = Cluster(flink, backend), make_node("first").start()
    with cluster.run(node) as running:
        assert running.first() == 0
        wait_until(lambda: bool(jobs(node)))
        (job,) = jobs(node)
        wait_checkpoints(job, above=4)
    stored = remote_files / job.name
    retained = [path / "_metadata" for path in complete(job)]
    assert len(retained) >= RETAINED
    expected = flink.references(*retained)
    assert {path: reached(path) for path in retained} == expected
    named = {line.rpartition("/")[2].rpartition(" ")[2] for lines in expected.values() for line in lines}
    planted = plant(stored)
    before = below(stored)
    swept = sweep(node)
    assert not [path for path in planted if path.exists()]
    gone = before - below(stored)
    assert not {name for name in gone if name.rpartition("/")[2] in named or name.endswith("/_metadata")}
    left = {name for name in below(stored) if not name.startswith("taskowned") and not name.endswith("/_metadata")}
    assert {name.rpartition("/")[2] for name in left if "/" in name} <= named, "orphans are left"
    print(f"{backend}: {sum(plan.removed for plan in swept)} entries went, {len(planted)} of them planted")

    node.stop()
    node.lose_disk()
    node.start()  # at the same mountpoint, as on any other node: Flink's metadata has absolute paths
    firsts = []
    for metadata in retained[-RETAINED:]:  # the kill may have cut off the deletion of the one before
        with cluster.run(node, start=metadata.parent) as running:
            firsts.append(running.first())
            running.goes_on()
    assert 0 < firsts[0] < firsts[-1], "each goes on where its checkpoint was taken"


@pytest.mark.parametrize("claim", ["CLAIM", "NO_CLAIM"])
def test_what_another_job_goes_on_from_stays(flink: Flink, make_node: NodeFactory, remote_files: Path, claim: str) -> None:
    cluster, node = Cluster(flink, "rocksdb", **UNCOMPACTED), make_node().start()
    with cluster.run(node) as running:
        running.first()
        wait_until(lambda: bool(jobs(node)))
        (first,) = jobs(node)
        wait_checkpoints(first, above=3)
    taken = complete(first)[-1]
    with cluster.run(node, start=taken, claim=claim, retained=MANY) as running:
        assert running.first() > 0
        wait_until(lambda: len(jobs(node)) == 2)
        (second,) = jobs(node) - {first}
        wait_checkpoints(second, above=int(taken.name[4:]) + 1)
    oldest = complete(second)[0]
    of_first = [line for line in reached(oldest / "_metadata") if f"/{first.name}/shared/" in line]
    assert bool(of_first) is (claim == "CLAIM"), "only who claims a checkpoint shares its files"
    planted = plant(remote_files / first.name) | plant(remote_files / second.name)
    sweep(node)
    assert not [path for path in planted if path.exists()]
    for start in (oldest, taken):
        with cluster.run(node, start=start) as running:
            assert running.first() > 0
            running.goes_on()
