"""Temporary files of writers: a sweep takes what killed ones have left on this node, and nothing that is still wanted."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.control.messages import PlanInfo, SweepRequest
from tests.conftest import NodeFactory
from tests.mount.test_checkpoint_hooks import execute
from tests.support.daemons.node import Node, wait_until

STATE = "flights/state/0/0"
WRITER = """
import sys
file = open(sys.argv[1], "wb")
file.write(b"half")
file.flush()
print("written", flush=True)
sys.stdin.read()
"""


def temporary(directory: Path, name: str, suffix: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f".{name}.{uuid.uuid4()}{suffix}.tmp"


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program that has written to a new file at ``path``, and goes on."""
    command = [sys.executable, "-c", WRITER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
        process.kill()


def swept(node: Node, *, at_once: bool = True) -> PlanInfo:
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints), grace_seconds=0))
        return execute(client, plan, at_once=at_once)


@pytest.mark.promise("sweep-leftovers")
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_killed_writer_has_left_goes_and_what_a_living_one_writes_stays(
    node: Node, remote_files: Path, *, at_once: bool
) -> None:
    directory = node.checkpoints / STATE
    dead, living = temporary(directory, "5.delta", ".TID7"), temporary(directory, "6.delta")
    with writer(dead):
        pass
    checksum = directory / f".{dead.name}.crc"
    others = [directory / "notes.tmp", directory / f".part-0.inprogress.{uuid.uuid4()}", directory / ".5.tmp"]
    for path in (checksum, *others):
        path.write_bytes(b"x")
    with writer(living):
        before_ns = directory.stat().st_mtime_ns
        done = swept(node, at_once=at_once)
        assert {Path(item.path) for item in done.items} == {dead, checksum, living}
        assert {item.why for item in done.items} == {"temporary file of a dead writer: on this node"}
        assert living.exists()
        wait_until(lambda: swept(node, at_once=at_once).in_use == 1)  # the kernel may close a killed program's files late
        assert sorted(os.listdir(directory)) == sorted(path.name for path in (living, *others))
        assert directory.stat().st_mtime_ns > before_ns
        assert not (node.store / "tree/checkpoints" / STATE / dead.name).exists()
        living.rename(directory / "6.delta")
    assert (remote_files / STATE / "6.delta").read_bytes() == b"half"
    assert swept(node).count == 0
    dead.write_bytes(b"again")
    assert dead.read_bytes() == b"again"


@pytest.mark.promise("sweep-leftovers")
def test_what_was_touched_within_the_grace_age_stays_whatever_its_time_says(node: Node) -> None:
    young = temporary(node.checkpoints / STATE, "5.delta")
    young.write_bytes(b"complete, and not renamed yet")
    os.utime(young, (0, 0))
    with node.client() as client:
        assert client.plan_sweep(SweepRequest(path=str(node.checkpoints))).count == 0
        plan = client.plan_sweep(SweepRequest(path=str(node.checkpoints / "flights"), grace_seconds=0))
        young.rename(young.with_name("5.delta"))
        done = execute(client, plan)
    assert (plan.count, done.removed, done.gone) == (1, 0, 1)
    assert (node.checkpoints / STATE / "5.delta").read_bytes() == b"complete, and not renamed yet"


@pytest.mark.promise("sweep-leftovers")
def test_each_node_sweeps_its_own_disk_also_where_another_one_leads(make_node: NodeFactory, remote_files: Path) -> None:
    settings = {"sweep__every_seconds": 10**8, "sweep__grace_seconds": 0, "sweep__roots": "checkpoints"}
    make_node("leads", **settings).start()
    wait_until(lambda: any(remote_files.rglob("sweep-*")))
    other = make_node("other", **settings).start()
    left = temporary(other.checkpoints / STATE, "5.delta")
    left.write_bytes(b"left")
    other.stop()
    other.start()  # a node sweeps when it starts
    wait_until(lambda: not left.exists())
