"""Each disk of a node has a reserve and evictions of its own, and is shown."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.output import size
from holdfast.store import disk_space
from tests.conftest import NodeFactory
from tests.mount.test_command import doctors, holdfast
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image

MIB = 1 << 20
COPIES = 5
COPY_BYTES = 8 * MIB


class Scene:
    """A node with a working directory on another disk, which has copies of objects; the first disk has one too."""

    def __init__(self, node: Node, first: Path, other: Path, blobs: Path, checkpoints: Path) -> None:
        self.node = node
        self.first = first
        self.other = other
        self.workdir = node.work / "worker_0"
        self.workdir.mkdir()
        for directory in (blobs, checkpoints):
            directory.mkdir(parents=True, exist_ok=True)
        (checkpoints / "object").write_bytes(os.urandom(COPY_BYTES))
        (node.checkpoints / "object").read_bytes()
        for number in range(COPIES):
            (blobs / f"{number}").write_bytes(os.urandom(COPY_BYTES))

    def fetch(self) -> None:
        """Have copies of all objects on the other disk."""
        for number in range(COPIES):
            (self.workdir / "blobStorage" / f"{number}").read_bytes()
        assert len(self.copies()) == COPIES

    def copies(self) -> list[str]:
        """Return the names of the copies on the other disk."""
        return sorted(file.name for file in self.other.glob("workdirs/*/blobStorage/?"))

    def has_first(self) -> bool:
        """Say whether the copy on the first disk is there."""
        return (self.first / "store/tree/checkpoints/object").exists()

    def free_bytes(self) -> int:
        """Return how many bytes of the other disk are free."""
        return disk_space(self.other).free_bytes

    def fill(self, left_bytes: int) -> None:
        """Let another program take all of the other disk but so many bytes."""
        with (self.other.parent / "somebodys").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.free_bytes() - left_bytes)


@pytest.fixture
def scene(make_node: NodeFactory, workspace: Path, remote_files: Path) -> Iterator[Scene]:
    with (
        mounted_image("ext4", workspace / "first", 64 * MIB) as first,
        mounted_image("ext4", workspace / "other", 256 * MIB, "-m", "0", "-N", "256") as other,
    ):
        (other / "holdfast").mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=other / "holdfast").start()
        yield Scene(node, first, other / "holdfast", workspace / "remote/blobs", remote_files)
        node.clean_up()  # before the disks go


@pytest.mark.promise("workdir-disk-room")
@pytest.mark.parametrize("passthrough", [True, False])
def test_copies_on_a_full_disk_go_for_what_is_written_there_and_those_on_others_stay(
    scene: Scene, *, passthrough: bool
) -> None:
    scene.node.stop()
    scene.node.start(mount__passthrough=passthrough)
    scene.fetch()
    scene.fill(70 * MIB)
    with (scene.workdir / "tmp/file").open("wb", buffering=0) as file:
        for _ in range(100):
            assert file.write(bytes(MIB)) == MIB
    assert len(scene.copies()) < COPIES
    assert scene.has_first()


@pytest.mark.promise("workdir-disk-room")
def test_the_reserve_is_kept_free_on_each_disk(scene: Scene) -> None:
    scene.fetch()
    scene.fill(30 * MIB)
    scene.node.stop()
    scene.node.start(cache__min_free_bytes=45 * MIB)
    wait_until(lambda: scene.free_bytes() >= 45 * MIB)
    assert len(scene.copies()) == COPIES - 2


@pytest.mark.promise("workdir-disk-room")
def test_a_fetch_to_a_full_disk_evicts_there(scene: Scene) -> None:
    scene.fetch()
    scene.fill(COPY_BYTES // 2)
    (scene.workdir / "blobStorage/0").unlink()
    (scene.node.mountpoint / "blobs/new").write_bytes(os.urandom(COPY_BYTES))
    (scene.workdir / "blobStorage/new").read_bytes()
    assert scene.has_first()


@pytest.mark.promise("workdir-disk-room")
def test_a_file_is_refused_at_once_where_nothing_can_go_for_it(scene: Scene) -> None:
    files = (scene.workdir / f"localState/{number}" for number in range(1000))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        deque(map(Path.touch, files), maxlen=0)  # takes the inodes
    made = list((scene.workdir / "localState").iterdir())
    for step in (os.mkdir, lambda path: os.symlink("target", path), Path.touch):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            step(scene.workdir / "localState/more")
    assert scene.node.status().counters["files_evicted"] == 0
    assert scene.has_first()
    for path in made[:3]:
        path.unlink()
    scene.node.stop()
    scene.node.start(cache__min_free_share=0.05)
    wait_until(lambda: f"the disk {scene.other} has hardly any inodes left" in "; ".join(scene.node.status().problems))
    event = scene.node.wait_event("disk-full", disk=str(scene.other))
    assert event["of"] == "inodes"
    assert f"the disk {scene.other} has 3 of 256 inodes free" in event["problem"]
    other = scene.node.work / "worker_1"
    other.mkdir()  # where there is room
    (other / "tmp/file").touch()
    assert (scene.first / "store/tree/work/worker_1/tmp/file").exists()
    for path in made[3:]:
        path.unlink()
    assert scene.node.wait_event("disk-has-room-again", disk=str(scene.other))
    assert scene.node.status().problems == []


@pytest.mark.parametrize("faults", [[], ["late_statvfs"]], ids=["soon", "while the daemon looks at the disk"])
def test_what_was_deleted_counts_as_free_on_its_own_disk(scene: Scene, faults: list[str]) -> None:
    scene.node.stop()
    scene.node.faults = faults
    scene.node.start()
    for directory, disk in ((scene.workdir / "tmp", scene.other), (scene.node.work, scene.first)):
        with (directory / "file").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 20 * MIB)
            before = os.statvfs(directory)
        (directory / "file").unlink()
        after = os.statvfs(directory)
        assert (after.f_bavail - before.f_bavail) * after.f_frsize >= 20 * MIB, disk
        assert after.f_blocks == os.statvfs(disk).f_blocks


def test_status_and_metrics_show_the_room_on_each_disk(scene: Scene) -> None:
    scene.node.stop()
    scene.node.start(cache__min_free_share=0.05)
    scene.fetch()
    with scene.node.client() as client:
        (disk,), page = client.status().other_disks, client.metrics()
    space = os.statvfs(scene.other)
    assert (disk.files, disk.free_files) == (256, space.f_favail)
    assert disk.min_free_files == 12
    assert disk.min_free_bytes == int(0.05 * disk.size_bytes)
    assert disk.cached_bytes == COPIES * COPY_BYTES
    for name, value in (
        ("min_free_bytes", disk.min_free_bytes),
        ("inodes", 256),
        ("free_inodes", disk.free_files),
        ("min_free_inodes", 12),
        ("cache_bytes", disk.cached_bytes),
        ("workdirs", 1),
    ):
        assert f'holdfast_other_disk_{name}{{disk="{scene.other}"}} {value}\n' in page
    assert f"holdfast_cache_bytes {(COPIES + 1) * COPY_BYTES}\n" in page
    shown = holdfast("status", socket=scene.node.socket)
    assert (
        f"{disk.free_files} inodes of 256, {size(disk.min_free_bytes)} kept free, working directories: 1, in {scene.other}"
        in shown
    )


def test_doctor_looks_at_each_disk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE__DIRECTORY", str(scene.first / "store"))
    monkeypatch.setenv("HOLDFAST_STORE__OTHER_DISKS", str(scene.other))
    monkeypatch.setenv("HOLDFAST_CONTROL__SOCKET", str(scene.node.socket))  # so it is the configuration of this daemon
    scene.fill(2 * MIB)
    scene.node.stop()
    found = [each for each in doctors(socket=scene.node.socket) if each["check"] == "store"]
    assert [each["level"] for each in found if str(scene.first) in each["found"]] == ["ok"]
    (full,) = (each for each in found if str(scene.other) in each["found"])
    assert (full["level"], "less than the reserve" in full["found"]) == ("fail", True)
