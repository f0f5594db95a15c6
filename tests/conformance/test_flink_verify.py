"""Verify and clone against a real Flink, on the mount: what verify says can be restored is, rightly, and nothing else is.

``./run python -m tests.histories.flink_restarts`` tries each file in each way of keeping state; here are some, with flipped
bytes, which the mount never hands out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.control.client import ControlClient
from holdfast.control.messages import CloneRequest, VerifyRequest
from tests.support.checkpoints.damages import KINDS, Damage
from tests.support.daemons.node import Node
from tests.support.flink.real_flink import Flink
from tests.support.flink.trials import SHAPES, Laid

JOBS = "jobs"


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Flink:
    return Flink(tmp_path_factory.mktemp("flink"))


def chosen(laid: Laid) -> list[tuple[Damage, bool]]:
    """Each kind of damage to a file that the newest needs, to its metadata, and to one that only an older one needs."""
    *older, newest = laid.names
    needed = laid.files([newest])
    state = [name for name in needed if not name.endswith("/_metadata")]
    largest = max(state, key=lambda name: (laid.root / name).stat().st_size)
    found = [(Damage(largest, kind), False) for kind in KINDS]
    changelogs = [name for name in state if "/dstl/" in name]
    found += [(Damage(name, kind), False) for name in changelogs[-1:] for kind in KINDS]
    found.append((Damage(f"{newest}/_metadata", "flipped"), False))
    found += [(Damage(name, "missing"), True) for name in sorted(set(laid.files(older)) - set(needed))[:1]]
    return found


def is_restorable(client: ControlClient, path: Path) -> bool:
    *_, last = client.verify_checkpoints(VerifyRequest(path=str(path), deep=True))
    return any(each.restorable for each in last.restores)


@pytest.mark.parametrize("shape", ["rocksdb", "native", "compressed changelog"])
def test_flink_restores_what_verify_says_and_nothing_else(
    flink: Flink, node: Node, remote_files: Path, workspace: Path, shape: str
) -> None:
    laid = Laid(flink, SHAPES[shape], node.checkpoints / JOBS)
    stored, newest = remote_files / JOBS, laid.root / laid.names[-1]
    with node.client() as client, laid.restoring(flink) as restores:
        right = restores.restore(newest)
        assert right.startswith("restored")
        assert is_restorable(client, newest)
        for damage, can in chosen(laid):
            *_, _ = client.evict(str(laid.root))  # a node that has a copy goes on with that
            shutil.copy2(stored / damage.name, workspace / "whole")  # with its digest
            damage.apply(stored)
            verdict, answer = is_restorable(client, newest), restores.restore(newest)
            shutil.copy2(workspace / "whole", stored / damage.name)
            assert (verdict, answer == right) == (can, can), (damage, answer)


@pytest.mark.parametrize("shape", ["canonical", "native", "hashmap"])
def test_a_job_goes_on_from_a_copy_whose_original_is_gone(flink: Flink, node: Node, remote_files: Path, shape: str) -> None:
    """Two kinds of savepoints, and a checkpoint that shares no files with others."""
    laid = Laid(flink, SHAPES[shape], node.checkpoints / JOBS)
    original, copy = laid.root / laid.names[-1], node.checkpoints / "copies" / shape
    with node.client() as client, laid.restoring(flink) as restores:
        right = restores.restore(original)
        assert right.startswith("restored")
        *_, last = client.clone(CloneRequest(path=str(original), to=str(copy)))
        assert last.finished
        shutil.rmtree(remote_files / JOBS)
        *_, _ = client.evict(str(node.checkpoints))
        assert is_restorable(client, copy)
        assert restores.restore(copy) == right
