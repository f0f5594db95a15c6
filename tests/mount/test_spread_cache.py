"""A node whose disks share the cache: the directory of each partition's state is on one of them, with all that is in it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory
from tests.mount.test_objects import objects
from tests.mount.test_several_disks import BYTES, Disks, mount, refusal, said_after_takeover, unmount
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.disks.recorded_disk import RecordedDisk
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server
from tests.support.users.privileges import ALICE

SST = "000001-01234567-0123-0123-0123-0123456789ab.sst"


class Spread(Disks):
    """The disks of a node, and where directories of its mount are on them."""

    def directories(self, number: int) -> dict[str, Path]:
        """Return the directories of partitions on one of the other disks, by their paths in the mount."""
        area = self.others[number] / "partitions"
        found = list(area.iterdir()) if area.exists() else []
        return {os.getxattr(each, "user.holdfast.place").decode(): each for each in found}

    def place(self, directory: Path, node: Node) -> Path:
        """Return where a directory of the mount is."""
        path = str(directory.relative_to(node.mountpoint))
        found = [on_disk[path] for on_disk in map(self.directories, range(len(self.others))) if path in on_disk]
        assert len(found) <= 1
        here = self.first / "store/tree" / path
        if found:
            assert os.listdir(here) == []
        return found[0] if found else here

    def disk_of(self, directory: Path, node: Node) -> int:
        """Return the number of the disk of a directory; 0 is the first."""
        place = self.place(directory, node)
        return next((number for number, disk in enumerate(self.others, 1) if place.is_relative_to(disk)), 0)


@pytest.fixture
def disks(workspace: Path) -> Iterator[Spread]:
    with ExitStack() as stack:
        yield Spread(stack.enter_context(mounted_image("ext4", workspace / "first", BYTES // 4)), workspace, stack)


def settings(disks: Spread) -> dict[str, object]:
    return {
        "store__directory": disks.first / "store",
        "store__other_disks": ",".join(map(str, disks.others)),
        "store__spread_cache": True,
    }


@pytest.fixture
def node(disks: Spread, make_node: NodeFactory) -> Iterator[Node]:
    node = make_node(**settings(disks))
    node.store = disks.first / "store"
    node.start()
    yield node
    node.clean_up()  # before the disks go


def partition(node: Node, number: int) -> Path:
    return node.checkpoints / f"team/q/state/0/{number}"


def content(number: int) -> dict[str, bytes]:
    """Return what a partition has, by the names in its directory."""
    return {"1.changelog": b"changes of %d" % number, f"SSTs/{SST}": b"sorted %d" % number * 10_000}


def write(node: Node, *numbers: int) -> list[Path]:
    """Make partitions as Spark does, with files that are sent; return their directories."""
    for number in numbers:
        (partition(node, number) / "SSTs").mkdir(parents=True)
        for name, data in content(number).items():
            temporary = partition(node, number) / f".{os.path.basename(name)}.tmp"
            temporary.write_bytes(data)
            temporary.rename(partition(node, number) / name)
    return [partition(node, number) for number in numbers]


def store(remote: Path, *numbers: int) -> None:
    """Let the store have partitions that no node knows of."""
    for number in numbers:
        for name, data in content(number).items():
            file = remote / f"team/q/state/0/{number}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def check(node: Node, *numbers: int) -> None:
    for number in numbers:
        assert {name: (partition(node, number) / name).read_bytes() for name in content(number)} == content(number)


def numbers_on(disk: Path) -> list[int]:
    """Return the partitions that are on a disk."""
    paths = (os.getxattr(each, "user.holdfast.place").decode() for each in (disk / "partitions").iterdir())
    return [int(os.path.basename(path)) for path in paths]


def fetched(node: Node) -> int:
    """Return how many objects this run of the daemon has fetched."""
    return int(node.status().counters["objects_fetched"])


@pytest.mark.promise("spread-cache")
def test_partitions_are_spread_by_free_space_and_stay_where_they_are(node: Node, disks: Spread, remote_files: Path) -> None:
    made = write(node, *range(6))
    places = {directory: disks.place(directory, node) for directory in made}
    assert Counter(disks.disk_of(directory, node) for directory in made) == {1: 3, 2: 3}  # eight times the first one's space
    assert objects(remote_files) == {
        f"team/q/state/0/{number}/{name}": data for number in range(6) for name, data in content(number).items()
    }
    ids = {path: path.stat().st_ino for directory in made for path in (directory, *directory.rglob("*"))}
    assert len(set(ids.values())) == len(ids)
    for again in (node.stop, node.kill):
        again()
        node.start()
        assert {directory: disks.place(directory, node) for directory in made} == places
        check(node, *range(6))
        assert {path: path.stat().st_ino for path in ids} == ids
        assert sorted(os.listdir(made[0].parent)) == [directory.name for directory in made]
        assert fetched(node) == 0
        assert_in_order(node)
    node.stop()
    shutil.rmtree(node.store / "index")
    node.start()
    assert node.wait_event("index-rebuilt")["files"] == 12
    check(node, *range(6))
    assert fetched(node) == 0
    assert node.status().unsent == []
    assert_in_order(node)
    assert "user.holdfast.disk" not in os.listxattr(made[0])
    assert disks.disk_of(node.checkpoints / "team/q/state/0", node) == 0


@pytest.mark.promise("spread-cache")
def test_what_is_fetched_is_spread_as_well(node: Node, disks: Spread, remote_files: Path) -> None:
    store(remote_files, *range(4))
    large = os.urandom(12 << 20)
    for number in range(4):
        (remote_files / f"team/q/state/0/{number}/1.zip").write_bytes(large)
    check(node, *range(4))
    assert Counter(disks.disk_of(partition(node, number), node) for number in range(4)) == {1: 2, 2: 2}
    for number in range(4):
        assert (partition(node, number) / "1.zip").read_bytes() == large
        place = disks.place(partition(node, number), node)
        wait_until((place / "1.zip").exists)
        assert (place / "SSTs" / SST).read_bytes() == content(number)[f"SSTs/{SST}"]
    assert os.statvfs(partition(node, 0)).f_blocks == os.statvfs(disks.place(partition(node, 0), node)).f_blocks
    with node.client() as client:
        there = [disk.cached_bytes for disk in client.status().other_disks]
        list(client.evict(str(node.checkpoints)))
        assert sum(there) == sum(len(data) for number in range(4) for data in (large, *content(number).values()))
        assert [disk.cached_bytes for disk in client.status().other_disks] == [0, 0]
    before = fetched(node)
    check(node, *range(4))
    assert fetched(node) == before + 8


@pytest.mark.promise("spread-cache")
def test_links_and_renames_stay_within_a_partition_or_a_disk(node: Node, disks: Spread, remote_files: Path) -> None:
    one, other = write(node, 0, 1)
    assert disks.disk_of(one, node) != disks.disk_of(other, node)
    os.link(one / "SSTs" / SST, one / "2.changelog")
    assert (one / "2.changelog").stat() == (one / "SSTs" / SST).stat()
    assert (remote_files / "team/q/state/0/0/2.changelog").read_bytes() == content(0)[f"SSTs/{SST}"]
    workdirs = [node.work / f"worker_{number}" for number in range(2)]
    for workdir in workdirs:
        workdir.mkdir()
        (workdir / "rocksdb" / workdir.name).write_bytes(workdir.name.encode())
    by_disk = {1 + next(n for n in (0, 1) if disks.of(each).is_relative_to(disks.others[n])): each for each in workdirs}
    near, far = (by_disk[disks.disk_of(directory, node)] for directory in (one, other))
    os.link(near / "rocksdb" / near.name, one / "3.changelog")
    assert os.path.samefile(near / "rocksdb" / near.name, one / "3.changelog")
    assert (remote_files / "team/q/state/0/0/3.changelog").read_text() == near.name
    store(remote_files, 2)  # the next one's directory is in the store alone, and would be on one of the two disks
    unplaced, here = partition(node, 2) / "9.changelog", node.checkpoints / "here.tmp"
    here.write_bytes(b"on the first disk")
    before = objects(remote_files)
    for old, new in (
        (far / "rocksdb" / far.name, one / "9.changelog"),
        (one / "1.changelog", other / "9.changelog"),
        (one / "1.changelog", node.checkpoints / "team/9"),
        (here, unplaced),
    ):
        for step in (os.link, os.rename):
            with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
                step(old, new)
    assert objects(remote_files) == before
    subprocess.run(["mv", str(far / "rocksdb" / far.name), str(one / "9.changelog")], check=True)
    assert (remote_files / "team/q/state/0/0/9.changelog").read_text() == far.name


@pytest.mark.promise("spread-cache")
def test_a_directory_of_a_partition_is_copied_and_removed_but_not_renamed(
    node: Node, disks: Spread, remote_files: Path
) -> None:
    state = node.checkpoints / "q/state/0"
    (state / "3").mkdir(parents=True)
    (state / "3/file.tmp").write_bytes(b"temporary")
    (state / "empty").mkdir()
    for old, new in (
        (state / "3", state / "4"),
        (node.checkpoints / "q", node.checkpoints / "r"),
        (state / "empty", state / "3"),
    ):
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            old.rename(new)
    subprocess.run(["mv", str(state / "3"), str(state / "4")], check=True)
    assert (state / "4/file.tmp").read_bytes() == b"temporary"
    assert sorted(os.listdir(state)) == ["4", "empty"]
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        (state / "4").rmdir()
    (state / "4/file.tmp").unlink()
    (state / "4").rmdir()
    assert [disks.directories(number) for number in (0, 1)] == [{}, {}]
    made = write(node, *range(3))
    with (made[0] / "1.changelog").open("rb") as file:
        shutil.rmtree(node.checkpoints / "team")
        assert file.read() == content(0)["1.changelog"]
    wait_until(lambda: objects(remote_files) == {})
    assert not (node.checkpoints / "team").exists()
    assert [disks.directories(number) for number in (0, 1)] == [{}, {}]
    for path in disks.others:
        wait_until(lambda path=path: os.listdir(path / "trash") == os.listdir(path / "orphans") == [])  # type: ignore[misc]
    write(node, *range(3))
    check(node, *range(3))


def test_what_others_remove_from_the_store_goes_here_with_its_directory(
    node: Node, disks: Spread, remote_files: Path
) -> None:
    store(remote_files, *range(3))
    check(node, *range(3))
    shutil.rmtree(remote_files / "team")
    node.stop()
    node.start(remote__metadata_ttl_seconds=0)
    wait_until(lambda: os.listdir(node.checkpoints) == [])
    assert [disks.directories(number) for number in (0, 1)] == [{}, {}]
    assert os.listdir(node.store / "tree/checkpoints") == []


def test_directories_that_are_there_already_stay_and_the_option_can_be_taken_back(node: Node, disks: Spread) -> None:
    node.stop()
    node.start(store__spread_cache=False)
    write(node, 0)
    (partition(node, 1)).mkdir()
    node.stop()
    node.start()
    (before, empty), (spread,) = (partition(node, 0), partition(node, 1)), write(node, 2)
    (empty / "1.changelog").write_bytes(b"here")
    assert [disks.disk_of(each, node) for each in (before, empty)] == [0, 0]
    assert disks.disk_of(spread, node) > 0
    node.stop()
    node.start(store__spread_cache=False)
    check(node, 0, 2)
    assert fetched(node) == 0
    assert [disks.disk_of(each, node) for each in write(node, 3, 4)] == [0, 0]


@pytest.mark.promise("spread-cache-room")
def test_copies_are_evicted_on_the_disk_where_room_is_wanted(
    make_node: NodeFactory, workspace: Path, remote_files: Path
) -> None:
    mebibyte = 1 << 20
    with (
        mounted_image("ext4", workspace / "first", 64 * mebibyte) as first,
        mounted_image("ext4", workspace / "other", 256 * mebibyte, "-m", "0") as other,
    ):
        (other / "holdfast").mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=other / "holdfast", store__spread_cache=True)
        with ExitStack() as stack:
            stack.callback(node.start().clean_up)
            store(remote_files, 0)
            (remote_files / "object").write_bytes(os.urandom(8 * mebibyte))
            for number in range(6):
                (remote_files / f"team/q/state/0/0/{number}.zip").write_bytes(os.urandom(8 * mebibyte))
            assert len((node.checkpoints / "object").read_bytes()) == 8 * mebibyte
            for number in range(5):
                (partition(node, 0) / f"{number}.zip").read_bytes()
            wait_until(lambda: len(list(other.glob("holdfast/partitions/*/[0-4].zip"))) == 5)
            with (other / "somebodys").open("wb") as file:
                space = os.statvfs(other)
                os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - 4 * mebibyte)
            assert len((partition(node, 0) / "5.zip").read_bytes()) == 8 * mebibyte
            wait_until(lambda: len(list(other.glob("holdfast/partitions/*/5.zip"))) == 1)
            assert len(list(other.glob("holdfast/partitions/*/[0-4].zip"))) < 5
            assert (first / "store/tree/checkpoints/object").exists()
            (partition(node, 0) / "6.zip").write_bytes(bytes(8 * mebibyte))
            assert (remote_files / "team/q/state/0/0/6.zip").stat().st_size == 8 * mebibyte
            assert (first / "store/tree/checkpoints/object").exists()


@pytest.mark.promise("spread-cache-disk-fails")
def test_a_disk_that_is_pulled_out_takes_its_copies_alone_and_they_are_fetched_again(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, workspace: Path
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(mounted_image("ext4", workspace / "first", BYTES))
        sound = stack.enter_context(mounted_image("ext4", workspace / "sound", BYTES)) / "holdfast"
        bad = stack.enter_context(RecordedDisk("ext4", workspace / "bad", workspace / "bad.img"))
        for path in (sound, bad.path / "holdfast"):
            path.mkdir()
        node = make_s3_node(
            place.through(proxy.endpoint),
            store__directory=first / "store",
            store__other_disks=f"{sound},{bad.path / 'holdfast'}",
            store__spread_cache=True,
            checkpoints__durability="async",
        )
        stack.callback(node.start().clean_up)
        node.store = first / "store"
        write(node, *range(9))
        wait_until(lambda: node.status().unsent == [])
        on_bad, on_sound = numbers_on(bad.path / "holdfast"), numbers_on(sound)
        assert 0 < len(on_bad) < 9
        assert 0 < len(on_sound) < 9
        partition(node, on_bad[0]).chmod(0o700)
        os.chown(partition(node, on_bad[0]), ALICE.uid, ALICE.gid)
        proxy.down()
        for number in (on_bad[0], on_sound[0]):
            (partition(node, number) / "2.changelog").write_bytes(b"not sent")
        bad.fail()
        failed = node.wait_event("disk-failed")
        assert (failed["disk"], failed["partitions"]) == (str(bad.path / "holdfast"), len(on_bad))
        lost = node.wait_event("unsent-lost")
        assert lost["path"] == f"checkpoints/team/q/state/0/{on_bad[0]}/2.changelog"
        proxy.up()
        wait_until(lambda: node.status().unsent == [])
        assert not (partition(node, on_bad[0]) / "2.changelog").exists()
        assert (partition(node, on_sound[0]) / "2.changelog").read_bytes() == b"not sent"
        check(node, *range(9))
        assert fetched(node) == 2 * len(on_bad)
        rights = partition(node, on_bad[0]).stat()
        assert (rights.st_mode & 0o7777, rights.st_uid) == (0o700, ALICE.uid)
        assert partition(node, on_bad[1]).stat().st_mode & 0o7777 == 0o755
        (partition(node, on_bad[0]) / "3.changelog").write_bytes(b"it goes on")
        wait_until(lambda: node.status().unsent == [])
        node.expected_faults.append("is lost")
        node.kill()
        node.start()
        assert node.wait_event("disk-lost")["disk"] == str(bad.path / "holdfast")
        check(node, *range(9))
        assert (partition(node, on_bad[0]) / "3.changelog").read_bytes() == b"it goes on"
        assert fetched(node) == 0
        assert_in_order(node)


@pytest.mark.promise("spread-cache-disk-absent")
def test_a_disk_that_is_not_mounted_keeps_its_partitions(node: Node, disks: Spread) -> None:
    made = write(node, *range(6))
    away = [number for number, directory in enumerate(made) if disks.disk_of(directory, node) == 2]
    here = [number for number in range(6) if number not in away]
    (made[away[0]] / ".temporary.tmp").write_bytes(b"on that disk alone")
    node.kill()
    unmount(disks.others[1].parent)
    node.expected_faults.append("is not there")
    node.start()
    assert node.wait_event("disk-absent")["disk"] == str(disks.others[1])
    check(node, *here)
    for number in away:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.listdir(made[number])
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            (made[number] / "1.changelog").read_bytes()
    write(node, 6, 7)
    with node.client() as client:
        (query,) = [query for info in client.holdings().nodes for query in info.queries]
    assert sorted(held.partition for held in query.stores) == sorted([*here, 6, 7])
    node.stop()
    mount(disks.others[1].parent)
    node.start()
    check(node, *range(8))
    assert (made[away[0]] / ".temporary.tmp").read_bytes() == b"on that disk alone"
    assert fetched(node) == 0
    assert_in_order(node)


@pytest.mark.promise("spread-cache-disk-absent")
@pytest.mark.parametrize("index_is_lost", [True, False])
def test_what_was_not_sent_from_a_disk_is_sent_when_it_is_there_again(
    disks: Spread, make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, *, index_is_lost: bool
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async", **settings(disks))
    node.store = disks.first / "store"
    with ExitStack() as stack:
        stack.callback(node.start().clean_up)
        made = write(node, *range(4))
        wait_until(lambda: node.status().unsent == [])
        (away, *_), (here, *_) = ([each for each in made if disks.disk_of(each, node) == number] for number in (1, 2))
        proxy.down()
        for directory in (away, here):  # files of an earlier daemon are tried in the order of their disks
            (directory / "2.changelog").write_bytes(b"not sent")
        node.kill()
        unmount(disks.others[0].parent)
        proxy.up()
        if index_is_lost:
            shutil.rmtree(node.store / "index")
        node.expected_faults.append("is not there")
        node.start()
        assert node.wait_event("disk-absent")["disk"] == str(disks.others[0])
        if index_is_lost:
            node.wait_event("index-rebuilt")
        left = [] if index_is_lost else [str(away / "2.changelog")]
        wait_until(lambda: node.status().unsent == left)
        node.kill()
        mount(disks.others[0].parent)
        node.start()
        assert (away / "2.changelog").read_bytes() == b"not sent"
        wait_until(lambda: node.status().unsent == [])
        for directory in (away, here):
            key = place.key(f"checkpoints/{(directory / '2.changelog').relative_to(node.checkpoints)}")
            assert place.client().get_object(Bucket=place.bucket, Key=key)["Body"].read() == b"not sent"


@pytest.mark.promise("spread-cache-disk-fails")
def test_a_disk_that_is_left_out_once_nothing_is_on_it_takes_nothing_along(
    node: Node, disks: Spread, remote_files: Path
) -> None:
    write(node, *range(6))
    node.stop()
    one, other = disks.others
    assert f"does not name {other} any more" in refusal(node, store__other_disks=one)
    node.start()
    with node.client() as client:
        list(client.evict(str(node.checkpoints)))
    node.stop()
    node.start(store__other_disks=one)
    check(node, *range(6))
    on_first = (node.store / "tree/checkpoints/team/q/state/0").glob("*/1.changelog")
    assert sorted([*numbers_on(one), *(int(file.parent.name) for file in on_first)]) == list(range(6))
    assert_in_order(node)
    write(node, 6)
    check(node, 6)


@pytest.mark.promise("spread-cache-disk-fails")
def test_what_was_given_up_on_a_disk_does_not_come_back_with_it(node: Node, disks: Spread, remote_files: Path) -> None:
    made = write(node, *range(4))
    there = [number for number, directory in enumerate(made) if disks.disk_of(directory, node) == 1]
    made[there[1]].chmod(0o700)
    node.stop()
    known = json.loads((node.store / "disks.json").read_text())
    for disk in known["disks"]:
        disk["has_failed"] = disk["path"] == str(disks.others[0])  # as a daemon notes it, and then dies
    (node.store / "disks.json").write_text(json.dumps(known))
    shutil.rmtree(remote_files / f"team/q/state/0/{there[0]}")  # by another node, meanwhile
    node.start()
    asides = [each for each in (disks.others[0] / "trash").iterdir() if each.name.startswith("aside-")]
    assert len(asides) == len(there)
    assert len(node.events("not-deleted")) == len(there)
    assert not made[there[0]].exists()
    rest = [number for number in range(4) if number != there[0]]
    check(node, *rest)
    assert made[there[1]].stat().st_mode & 0o7777 == 0o700
    assert node.status().unsent == []
    assert_in_order(node)
    node.stop()
    node.start()
    check(node, *rest)
    assert node.events("not-deleted") == []


@pytest.mark.promise("power-cut")
def test_what_one_disk_has_lost_in_a_power_cut_is_mended_from_the_other(node: Node, disks: Spread) -> None:
    made = write(node, 0, 1, 2)
    other = node.checkpoints / "other/state/0/0"
    other.mkdir(parents=True)
    for directory in (made[0], other):
        (directory / "synced.tmp").write_bytes(b"on this node alone")
    places = {directory: disks.place(directory, node) for directory in (*made, other)}
    backing = {directory: node.store / "tree" / directory.relative_to(node.mountpoint) for directory in (*made, other)}
    node.kill()
    backing[made[0]].rmdir()
    os.removexattr(backing[made[1]], "user.holdfast.disk")
    (backing[made[1]] / "another.tmp").write_bytes(b"later")
    shutil.rmtree(places[made[2]])
    shutil.rmtree(node.store / "tree/checkpoints/other")
    (disks.others[0] / "partitions/of-no-path/deep").mkdir(parents=True)
    node.start()
    for directory, mode_above in ((made[0], 0o755), (other, 0o700)):  # what a power cut has taken may have been closed
        assert disks.place(directory, node) == places[directory]
        assert (directory / "synced.tmp").read_bytes() == b"on this node alone"
        assert directory.stat().st_mode & 0o7777 == 0o755
        assert directory.parents[1].stat().st_mode & 0o7777 == mode_above
    asides = [each for disk in disks.others for each in (disk / "trash").iterdir()]
    assert sorted(each.name for each in asides) == sorted(["aside-of-no-path", f"aside-{places[made[1]].name}"])
    assert len(node.events("not-deleted")) == 2
    assert (made[1] / "another.tmp").read_bytes() == b"later"
    check(node, 0, 1, 2)
    assert [disks.disk_of(directory, node) for directory in made[1:]] == [0, 0]
    assert fetched(node) == 4


@pytest.mark.promise("power-cut")
def test_the_later_of_two_directories_with_one_path_is_there_after_a_power_cut(node: Node, disks: Spread) -> None:
    made = write(node, *range(4))
    places = [disks.place(directory, node) for directory in made]
    backing = [node.store / "tree" / directory.relative_to(node.mountpoint) for directory in made]
    node.kill()
    for directory, place in zip(backing, places, strict=True):
        (place / "synced.tmp").write_bytes(b"on this node alone")
        mark = os.getxattr(directory, "user.holdfast.disk").partition(b"/")[0]
        os.setxattr(directory, "user.holdfast.disk", mark + b"/of-a-directory-before")
    os.setxattr(backing[3], "user.holdfast.disk", mark + b"-" + places[3].name.encode())  # and has not left
    earlier = disks.others[1] / "partitions/earlier"
    later = disks.others[1] / "partitions/later"
    for directory in (earlier, later):
        shutil.copytree(places[1], directory)
        os.setxattr(directory, "user.holdfast.place", os.getxattr(places[1], "user.holdfast.place"))
        (directory / "synced.tmp").write_bytes(directory.name.encode())
    os.setxattr(backing[1], "user.holdfast.disk", mark + b"/earlier")
    node.start()
    for number in (0, 2, 3):
        assert disks.place(made[number], node) == places[number]
        assert (made[number] / "synced.tmp").read_bytes() == b"on this node alone"
    assert disks.place(made[1], node) == later
    assert (made[1] / "synced.tmp").read_bytes() == b"later"
    asides = [each.name for disk in disks.others for each in (disk / "trash").iterdir()]
    assert sorted(asides) == sorted(["aside-earlier", f"aside-{places[1].name}"])
    check(node, *range(4))
    node.stop()
    node.start()
    assert disks.place(made[1], node) == later
    check(node, *range(4))


@pytest.mark.promise("spread-cache-disk-fails")
def test_a_disk_with_a_directory_that_can_not_be_read_is_lost_when_the_daemon_starts(node: Node, disks: Spread) -> None:
    made = write(node, *range(4))
    bad = disks.others[0]
    there = [directory for directory in made if disks.disk_of(directory, node) == 1]
    path = Path("/holdfast/partitions") / disks.place(there[0], node).name
    node.kill()
    unmount(bad.parent)
    command = ["debugfs", "-w", "-R", f"set_inode_field {path} mode 0", f"{bad.parent}.img"]
    subprocess.run(command, check=True, capture_output=True)
    mount(bad.parent)
    node.expected_faults.append("is lost")
    node.start()
    assert node.wait_event("disk-lost")["disk"] == str(bad)
    check(node, *range(4))
    assert fetched(node) == 2 * len(there)
    assert_in_order(node)


@pytest.mark.parametrize(
    ("closed", "mode"), [("", 0o700), ("SSTs", 0o700), (f"SSTs/{SST}", 0o600)], ids=["partition", "directory", "file"]
)
def test_who_may_see_state_is_decided_where_it_is(node: Node, closed: str, mode: int) -> None:
    (directory,) = write(node, 0)
    workdir = node.work / "worker_0"
    ALICE.do(workdir.mkdir)
    private = workdir / "localState/team/q/state/0/0/SSTs" / SST

    def is_allowed() -> None:
        assert private.read_bytes() == content(0)[f"SSTs/{SST}"]

    def is_refused() -> None:
        with pytest.raises((FileNotFoundError, PermissionError)):
            private.read_bytes()

    ALICE.do(is_allowed)
    os.chmod(directory / closed, mode)
    for again in (node.stop, node.kill):
        ALICE.do(is_refused)
        again()
        node.start()
        assert (directory / closed).stat().st_mode & 0o7777 == mode
    ALICE.do(is_refused)


_READS = """
import sys
with open(sys.argv[1], "rb") as file, open(sys.argv[2], "w+b", buffering=0) as temporary:
    temporary.write(b"before")
    print("open", flush=True)
    sys.stdin.readline()
    temporary.write(b" after")
    print(file.read(), flush=True)
"""


@pytest.mark.parametrize("dies", [True, False])
def test_open_files_outlive_the_daemon(node: Node, disks: Spread, dies: bool) -> None:
    node.stop()
    node.supervised = True
    node.start()
    (directory,) = write(node, 0)
    assert disks.disk_of(directory, node) > 0
    said = said_after_takeover(node, _READS, directory / "1.changelog", directory / "new.tmp", dies=dies)
    assert said == f"{content(0)['1.changelog']!r}\n"
    assert (directory / "new.tmp").read_bytes() == b"before after"
    (directory / "new.tmp").rename(directory / "2.changelog")
    assert (directory / "2.changelog").read_bytes() == b"before after"
