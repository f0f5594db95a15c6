"""A node whose store lies on a disk that is no ext4."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.mount import covered_directory
from tests.conftest import NodeFactory
from tests.support.daemons.node import settle, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.users.privileges import ALICE

BYTES = 512 << 20
MANY = 100


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_a_node_does_all_of_its_work_there_and_goes_on_after_a_crash(
    kind: str, make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    with mounted_image(kind, workspace / "disk", BYTES) as disk:
        node = make_node(store__directory=disk / "store").start()
        home = node.work / "worker_1"
        for number in range(3):  # what is emptied is deleted each time, not only the first
            with node.client() as client:
                client.acquire("worker", "1", os.getpid())
                (home / "rocksdb/deep").mkdir()
                (home / "rocksdb/deep/first").write_bytes(b"linked")
                os.link(home / "rocksdb/deep/first", home / f"localState/{number}")
                os.link(home / "rocksdb/deep/first", home / "tmp/third")
                client.release("worker", "1")
                client.acquire("worker", "1", os.getpid())
                linked = home / f"localState/{number}"
                wait_until(lambda linked=linked: linked.stat().st_nlink == 1)  # type: ignore[misc]
                assert os.listdir(disk / "store/trash") == []
                client.release("worker", "1")
        directory = node.checkpoints / "q/state"
        directory.mkdir(parents=True)
        for number in range(MANY):
            (directory / f"{number}").write_bytes(b"%d" % number)
            if number % 3 == 0:
                (directory / f"{number}").unlink()
        kept = {f"{number}" for number in range(MANY) if number % 3}
        settle(directory)
        assert set(os.listdir(directory)) == set(os.listdir(remote_files / "q/state")) == kept
        with node.client() as client:
            assert list(client.evict(str(directory)))[-1].done == len(kept)
        assert {name: (directory / name).read_bytes() for name in kept} == {name: name.encode() for name in kept}
        node.kill()
        node.start()
        assert {name: (directory / name).read_bytes() for name in kept} == {name: name.encode() for name in kept}
        assert [(home / f"localState/{number}").read_bytes() for number in range(3)] == [b"linked"] * 3
        node.stop()


@pytest.mark.promise("mountpoint-of-a-user")
def test_a_file_that_lands_below_a_users_mount_is_seen_on_btrfs(workspace: Path) -> None:
    with mounted_image("btrfs", workspace / "disk", BYTES) as disk:
        place = disk / "mount"
        place.mkdir()
        os.chown(place, ALICE.uid, ALICE.gid)

        def works() -> None:
            covered_directory.protect(str(place), ["work"], is_served=False)
            with covered_directory.lent(str(place)) as landed:
                (place / "lost").touch()
            assert landed == ["lost"]
            assert covered_directory.protect(str(place), ["work", "blobs"], is_served=False).hidden == ["lost"]
            covered_directory.release(str(place))
            assert os.listdir(place) == ["lost"], "no placeholder is left"

        ALICE.do(works)
