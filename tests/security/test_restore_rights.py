"""Who may verify, clone and rewind checkpoints, and watch what others do: the control group, and nobody else."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import BatchReport, CloneRequest, RewindRequest, UndoRequest, VerifyRequest
from tests.mount.test_verify import QUERY, lay
from tests.security.test_control_api import send
from tests.support.checkpoints.checkpoint_roots import below
from tests.support.daemons.node import Node
from tests.support.users.hostile_clients import attacking, get
from tests.support.users.privileges import MALLORY

SAMPLE = "spark-rocksdb-1-changelog"
TO = 6
COPY = "mallory/copy"


@pytest.fixture
def query(node: Node) -> Path:
    lay(node, SAMPLE, QUERY)
    return node.checkpoints / QUERY


def contents(directory: Path) -> dict[str, bytes]:
    """What is in the store, but for what the node tells of itself there."""
    names = {name for name in below(directory) if not name.startswith(".holdfast/")}
    return {name: (directory / name).read_bytes() for name in names if (directory / name).is_file()}


def test_others_neither_change_checkpoints_nor_see_what_is_done(node: Node, query: Path, remote_files: Path) -> None:
    """Gain: another query taken back to an old batch, its state copied, its batches and its files' names read."""
    before = contents(remote_files)
    bodies: dict[str, dict[str, object]] = {
        "verify": {"path": str(query), "deep": True},
        "clone": {"path": str(query), "to": f"{query}-copy"},
        "rewind": {"path": str(query), "to": TO, "idle_seconds": 0},
        "undo-rewind": {"path": str(query), "idle_seconds": 0},
        "execute": {"plan": "20260101-000000-aaaaaa"},
    }
    requests = [("POST", f"/v1/checkpoints/{name}", json.dumps(body).encode()) for name, body in bodies.items()]
    requests += [("GET", f"/v1/{name}", b"") for name in ("operations", "spark/batches", "history", "transfers", "events")]
    requests += [("GET", f"/v1/{name}?path={quote(str(query))}", b"") for name in ("usage", "checkpoints", "why")]
    requests.append(("POST", "/v1/spark/batches/report", b'{"query": "q", "run": "r", "batch": 1}'))

    def attack() -> list[int]:
        with pytest.raises(PermissionError):
            socket.socket(socket.AF_UNIX).connect(str(node.socket))
        return [send(node.socket.with_name("status.sock"), *request)[0] for request in requests]

    with attacking(MALLORY, attack) as codes:
        assert codes == [403] * len(requests)
    assert contents(remote_files) == before


def test_a_member_of_the_group_may_do_all_of_it(node: Node, query: Path, remote_files: Path) -> None:
    before = contents(remote_files / QUERY)
    os.chown(node.socket, -1, MALLORY.gid)
    (node.checkpoints / "mallory").mkdir()
    os.chown(node.checkpoints / "mallory", MALLORY.uid, MALLORY.gid)
    node.status()  # what a client imports at its first request, another user may not be able to read

    def act() -> list[object]:
        with ControlClient(node.socket) as client:
            *_, verified = client.verify_checkpoints(VerifyRequest(path=str(query), deep=True))
            *_, cloned = client.clone(CloneRequest(path=str(query), to=str(node.checkpoints / COPY)))
            plan = client.plan_rewind(RewindRequest(path=str(query), to=TO, idle_seconds=0))
            *_, rewound = client.execute(plan.id)
            *_, undone = client.undo_rewind(UndoRequest(path=str(query), idle_seconds=0))
            client.report_batch(BatchReport(query="mine", run="a", batch=1))
            seen = [(each.query, each.uid) for each in client.batches(None)]
        watching, _ = get(node.socket, "/v1/operations")
        return [verified.finished, cloned.finished, rewound.finished, undone.finished, seen, watching]

    with attacking(MALLORY, act) as found:
        assert found == [True, True, True, True, [["mine", MALLORY.uid]], 200]
    assert contents(remote_files / COPY).keys() <= before.keys()
    assert {
        name: data for name, data in contents(remote_files / QUERY).items() if not name.startswith("_rewound/")
    } == before


def test_a_copy_lies_in_the_store_of_its_original_and_nowhere_of_the_daemons_own(
    node: Node, query: Path, remote_files: Path
) -> None:
    """Gain: objects among the daemon's own, files in another team's store or anywhere on the node, written by root."""
    before = contents(remote_files)
    targets = ["/tmp/copy", node.work / "copy", node.mountpoint / "blobs/copy", node.checkpoints, f"{query}/state/copy"]
    targets += [node.checkpoints / "../../copy", node.checkpoints / ".holdfast/copy", node.checkpoints / "x/../.holdfast"]
    with node.client() as client:
        for target in targets:
            with pytest.raises(RefusedError):
                *_, _ = client.clone(CloneRequest(path=str(query), to=str(target)))
        for source in (node.checkpoints / ".holdfast", node.work, "/etc"):
            with pytest.raises(RefusedError):
                *_, _ = client.clone(CloneRequest(path=str(source), to=str(node.checkpoints / COPY)))
    assert contents(remote_files) == before
    assert not (remote_files / ".holdfast/copy").exists()
