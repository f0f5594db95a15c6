"""``holdfast checkpoint verify`` on a running daemon, over samples of what real engines have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import RestoreInfo, VerifyProgress, VerifyRequest
from tests.mount.test_command import holdfast
from tests.support.checkpoints.samples import sample
from tests.support.daemons.node import Node

QUERY = "query"
SPARK = "spark-rocksdb-2-changelog"
NEWEST = 11


def lay(node: Node, name: str, directory: str) -> None:
    """Write a sample through the mount, so that its objects have digests. Sidecars stay on the node anyway."""
    for path, file in sample(name).files.items():
        target = node.checkpoints / directory / path.decode()
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.name.startswith(".") and file.content is not None:
            target.write_bytes(file.content)


def verified(client: ControlClient, path: Path, batch: int | None = None, *, deep: bool = False) -> VerifyProgress:
    *_, last = client.verify_checkpoints(VerifyRequest(path=str(path), batch=batch, deep=deep))
    assert last.finished
    return last


def verdicts(found: VerifyProgress) -> dict[str, bool]:
    return {Path(each.path).name: each.restorable for each in found.restores if not each.expired}


def newest(found: VerifyProgress) -> RestoreInfo:
    (only,) = [each for each in found.restores if each.newest]
    return only


@pytest.fixture
def location(node: Node, remote_files: Path) -> Path:
    """The directory in the store of a query that was written through the mount."""
    lay(node, SPARK, QUERY)
    return remote_files / QUERY


def test_every_retained_batch_of_a_whole_query_can_be_restored_and_the_oldest_has_expired(
    node: Node, location: Path
) -> None:
    assert location.exists()
    with node.client() as client:
        found = verified(client, node.checkpoints / QUERY, deep=True)
    assert verdicts(found) == {"8": True, "9": True, "10": True, "11": True}
    assert [(Path(each.path).name, each.faults[0].why) for each in found.restores if each.expired] == [
        ("7", "it is not there")
    ]
    assert (found.done, found.without_digest) == (found.total, 0)
    assert found.done > 20


def test_a_lost_change_costs_the_batches_that_need_it_and_no_others(node: Node, location: Path) -> None:
    (lost,) = location.glob("state/0/0/10_*.changelog")
    lost.unlink()
    with node.client() as client:
        found = verified(client, node.checkpoints / QUERY)
        assert verdicts(found) == {"8": True, "9": False, "10": False, "11": True}
        (alone,) = verified(client, node.checkpoints / QUERY, 9).restores
        (named,) = verified(client, node.checkpoints / QUERY / "commits/9").restores
    assert alone == named
    assert [fault.path for fault in alone.faults] == [str(node.checkpoints / QUERY / "state/0/0" / lost.name)]


def test_a_flipped_byte_is_found_by_reading(node: Node, location: Path) -> None:
    (snapshot,) = location.glob("state/0/0/12_*.zip")
    content = snapshot.read_bytes()
    with snapshot.open("r+b") as file:  # in place: its digest stays
        file.seek(60)
        file.write(bytes([content[60] ^ 1]))
    with node.client() as client:
        assert newest(verified(client, node.checkpoints / QUERY)).restorable
        found = verified(client, node.checkpoints / QUERY, deep=True)
    assert verdicts(found) == {"8": True, "9": True, "10": True, "11": False}
    assert "digest" in newest(found).faults[0].why


def test_the_command_tells_scripts_what_it_found(node: Node, location: Path) -> None:
    def run(*arguments: str, status: int) -> str:
        where = node.checkpoints / QUERY
        return holdfast("checkpoint", "verify", where, *arguments, socket=node.socket, status=status)

    assert "4 of 4 can be restored; 1 expired" in run(status=0)
    (location / "commits/9").write_bytes(b"")
    some = run("--json", status=3)
    assert some == ""  # there is nothing to say on stderr
    (location / "metadata").unlink()
    run(status=4)


def test_checkpoints_of_flink_are_verified_by_their_metadata(node: Node, remote_files: Path) -> None:
    lay_listed(remote_files, "flink-incremental")
    with node.client() as client:
        found = verified(client, node.checkpoints)
        assert all(each.restorable for each in found.restores), found.restores
        (job,) = (remote_files / "checkpoints").iterdir()
        whole = max(job.glob("chk-*"))
        lost = next(iter(sorted((job / "shared").iterdir())))
        lost.unlink()
        assert not verified(client, node.checkpoints / "checkpoints" / job.name / whole.name).restores[0].restorable


def lay_listed(directory: Path, name: str) -> None:
    """Lay a sample of Flink's into a store; of files whose bytes it does not have, as many zeros."""
    for path, file in sample(name).files.items():
        target = directory / path.decode()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(file.size_bytes) if file.content is None else file.content)


def test_where_there_is_no_checkpoint_it_says_so(node: Node, location: Path) -> None:
    assert location.exists()
    with node.client() as client, pytest.raises(RefusedError, match="nothing to restore"):
        verified(client, node.checkpoints / "elsewhere")
    with node.client() as client, pytest.raises(RefusedError, match="no batch 3"):
        verified(client, node.checkpoints / QUERY, 3)
