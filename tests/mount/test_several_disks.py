"""A node with several disks: each working directory is on one of them, with all that is in it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, StartError, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.disks.recorded_disk import RecordedDisk
from tests.support.users.privileges import ALICE

BYTES = 256 << 20


class Disks:
    """Three disks: the node's store is on the first, and the two others have working directories."""

    def __init__(self, first: Path, workspace: Path, stack: ExitStack, kinds: tuple[str, str] = ("ext4", "xfs")) -> None:
        self.first = first
        self.others = [
            stack.enter_context(mounted_image(kind, workspace / f"disk{number}", 2 * BYTES)) / "holdfast"
            for number, kind in enumerate(kinds)
        ]
        for path in self.others:
            path.mkdir()

    def on(self, number: int) -> list[str]:
        """Return the names of the working directories on one of the other disks."""
        directory = self.others[number] / "workdirs"
        return os.listdir(directory) if directory.exists() else []

    def of(self, workdir: Path) -> Path:
        """Return where a working directory, which has a file with its name, is on the disks."""
        places = [self.first / "store/tree/work" / workdir.name]
        places += [other / "workdirs" / name for number, other in enumerate(self.others) for name in self.on(number)]
        found = [place for place in places if (place / "rocksdb" / workdir.name).exists()]
        assert len(found) == 1, found
        return found[0]


@pytest.fixture
def first(workspace: Path) -> Iterator[Path]:
    """The disk of the store directory."""
    with mounted_image("ext4", workspace / "first", BYTES // 4) as disk:
        yield disk


@pytest.fixture
def disks(first: Path, workspace: Path) -> Iterator[Disks]:
    with ExitStack() as stack:
        yield Disks(first, workspace, stack)


@pytest.fixture
def node(disks: Disks, make_node: NodeFactory) -> Iterator[Node]:
    node = make_node(store__directory=disks.first / "store", store__other_disks=",".join(map(str, disks.others)))
    node.store = disks.first / "store"
    node.start()
    yield node
    node.clean_up()  # before the disks go


def make(node: Node, *numbers: int) -> list[Path]:
    """Make working directories, with a file in each that has its name."""
    made = []
    for number in numbers:
        workdir = node.work / f"worker_{number}"
        workdir.mkdir()
        (workdir / "rocksdb" / workdir.name).write_bytes(b"%d" % number)
        made.append(workdir)
    return made


@pytest.mark.promise("workdir-disks")
def test_working_directories_are_spread_by_free_space_and_stay_where_they_are(node: Node, disks: Disks) -> None:
    made = make(node, 0, 1, 2, 3)
    places = {workdir: disks.of(workdir) for workdir in made}
    assert {len(disks.on(0)), len(disks.on(1))} == {2}
    for again in (node.stop, node.kill):
        again()
        node.start()
        assert {workdir: disks.of(workdir) for workdir in made} == places
        assert [(workdir / "rocksdb" / workdir.name).read_bytes() for workdir in made] == [b"0", b"1", b"2", b"3"]
        assert sorted(os.listdir(node.work)) == [workdir.name for workdir in made]


@pytest.mark.promise("workdir-disks")
def test_links_and_renames_stay_within_a_directory(node: Node, disks: Disks) -> None:
    one, other = make(node, 0, 1)
    assert disks.of(one).parent != disks.of(other).parent
    file = one / "rocksdb" / one.name
    os.link(file, one / "tmp/linked")
    assert (one / "tmp/linked").stat() == file.stat()
    assert file.stat().st_nlink == 2
    (one / "rocksdb/deep").mkdir()
    (one / "rocksdb/deep").rename(one / "localState/deep")
    (one / "tmp/linked").rename(one / "localState/deep/linked")
    assert os.path.samefile(one / "localState/deep/linked", file)
    for beyond in (other / "tmp/there", node.checkpoints / "there"):
        for step in (os.link, os.rename):
            with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
                step(file, beyond)
            assert not beyond.exists()
    (node.checkpoints / "object").write_bytes(b"object")
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        os.rename(node.checkpoints / "object", one / "tmp/object")
    assert (node.checkpoints / "object").read_bytes() == b"object"
    subprocess.run(["mv", str(file), str(node.checkpoints / "moved")], check=True)
    assert (node.checkpoints / "moved").read_bytes() == b"0"
    assert not file.exists()


def test_files_of_different_disks_are_different_files(node: Node) -> None:
    made = make(node, *range(4))
    for workdir in made:
        for number in range(200):
            (workdir / "rocksdb" / f"{number}").write_bytes(b"%s %d" % (workdir.name.encode(), number))
    files = [workdir / "rocksdb" / f"{number}" for workdir in made for number in range(200)]
    assert len({file.stat().st_ino for file in files}) == len(files)
    assert all(file.read_text() == f"{file.parents[1].name} {file.name}" for file in files)
    for workdir in made:
        listed = {entry.name: entry.inode() for entry in os.scandir(workdir / "rocksdb")}
        assert listed == {name: (workdir / "rocksdb" / name).stat().st_ino for name in listed}
    assert {entry.name: entry.inode() for entry in os.scandir(node.work)} == {
        workdir.name: workdir.stat().st_ino for workdir in made
    }


def test_objects_of_a_working_directory_are_kept_fetched_and_sent(node: Node, workspace: Path) -> None:
    (workspace / "remote/blobs").mkdir(parents=True, exist_ok=True)
    (workspace / "remote/blobs/stored").write_bytes(b"s" * 3_000_000)
    made = make(node, 0, 1, 2)
    for workdir in made:
        (workdir / "blobStorage/of-its-own").mkdir(exist_ok=True)
        (workdir / "blobStorage/of-its-own" / workdir.name).write_bytes(workdir.name.encode())
    for workdir in made:
        assert (workspace / "remote/blobs/of-its-own" / workdir.name).read_bytes() == workdir.name.encode()
        assert (workdir / "blobStorage/stored").read_bytes() == b"s" * 3_000_000
        (workdir / "rocksdb" / workdir.name).rename(workdir / "blobStorage/renamed")
        (workdir / "blobStorage/renamed").unlink()


def test_a_directory_that_is_emptied_or_removed_leaves_nothing_on_its_disk(node: Node, disks: Disks) -> None:
    one, other = make(node, 0, 1)
    with node.client() as client:
        client.release("worker", "0")
        client.acquire("worker", "0", os.getpid())
        assert os.listdir(one / "rocksdb") == []
        with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
            one.rmdir()
        (other / "localState/open").write_bytes(b"kept")
        with (other / "localState/open").open("rb") as file:
            subprocess.run(["rm", "-r", str(other)], check=True)
            assert file.read() == b"kept"
    assert not other.exists()
    with pytest.raises(FileExistsError):
        one.mkdir()
    wait_until(lambda: sum(len(disks.on(number)) for number in (0, 1)) == 1)
    other.mkdir()
    assert (other / "localState").is_dir()
    for path in disks.others:
        wait_until(lambda path=path: os.listdir(path / "trash") == os.listdir(path / "orphans") == [])  # type: ignore[misc]


def test_a_user_owns_the_directory_that_it_makes(node: Node) -> None:
    workdir = node.work / "worker_1"
    ALICE.do(lambda: workdir.mkdir(mode=0o700))
    stat = workdir.stat()
    assert (stat.st_uid, stat.st_mode & 0o7777) == (ALICE.uid, 0o700)
    ALICE.do(lambda: (workdir / "tmp/file").write_bytes(b"mine"))
    os.chmod(workdir, 0o750)
    os.utime(workdir, (5, 5))
    node.stop()
    node.start()
    assert (workdir.stat().st_mode & 0o7777, workdir.stat().st_mtime) == (0o750, 5)
    assert "user.holdfast.disk" not in os.listxattr(workdir)


def test_statfs_tells_of_the_disk_that_a_directory_is_on(node: Node, disks: Disks) -> None:
    (workdir,) = make(node, 0)
    there, here = os.statvfs(disks.of(workdir)), os.statvfs(disks.first)
    assert os.statvfs(workdir / "tmp").f_blocks == there.f_blocks != here.f_blocks
    assert os.statvfs(node.checkpoints).f_blocks == here.f_blocks


_KEEPS_OPEN = """
import os, sys
file = open(sys.argv[1], "w+b", buffering=0)
file.write(b"before")
os.unlink(sys.argv[1])
named = open(sys.argv[2], "w+b", buffering=0)
named.write(b"named")
print("open", flush=True)
sys.stdin.readline()
for each in (file, named):
    each.write(b" after")
    each.seek(0)
print(file.read() + b", " + named.read(), flush=True)
"""


def said_after_takeover(node: Node, program: str, *paths: Path, dies: bool) -> str:
    """Run a program that opens files; return what it says of them when another daemon is there."""
    command = [sys.executable, "-c", program, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        before = node.pid
        if dies:
            node.kill_daemon()
        else:
            with node.client() as client:
                client.restart()
        wait_until(lambda: node.answers() and node.pid != before)
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()


@pytest.mark.parametrize("dies", [True, False])
def test_open_files_outlive_the_daemon(node: Node, disks: Disks, dies: bool) -> None:
    node.stop()
    node.supervised = True
    node.start()
    (workdir,) = make(node, 0)
    said = said_after_takeover(node, _KEEPS_OPEN, workdir / "tmp/nameless", workdir / "tmp/named", dies=dies)
    assert said == "b'before after, named after'\n"
    assert (workdir / "tmp/named").read_bytes() == b"named after"
    wait_until(lambda: os.listdir(disks.of(workdir).parents[1] / "orphans") == [])


@pytest.mark.promise("workdir-disk-absent")
def test_a_disk_that_is_not_mounted_keeps_its_working_directories(node: Node, disks: Disks) -> None:
    made = make(node, *range(4))
    away = [workdir for workdir in made if disks.of(workdir).is_relative_to(disks.others[1])]
    here = [workdir for workdir in made if workdir not in away]
    (away[0] / "blobStorage/sent").write_bytes(b"sent")
    node.kill()
    unmount(disks.others[1].parent)
    node.expected_faults.append("is not there")
    node.start()
    assert node.wait_event("disk-absent")["disk"] == str(disks.others[1])
    assert sorted(os.listdir(node.work)) == [workdir.name for workdir in made]
    assert [(workdir / "rocksdb" / workdir.name).exists() for workdir in here] == [True] * len(here)
    for workdir in away:
        for step in (os.listdir, os.rmdir):
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                step(workdir)
    with node.client() as client:
        assert len(client.workdirs()) == len(made)
    make(node, 4, 5, 6)
    assert not (disks.others[1] / "workdirs").exists()
    node.stop()
    mount(disks.others[1].parent)
    node.start()
    assert [disks.of(workdir).is_relative_to(disks.others[1]) for workdir in away] == [True] * len(away)
    assert (away[0] / "blobStorage/sent").read_bytes() == b"sent"


@pytest.mark.promise("workdir-disk-absent")
def test_a_mountpoint_without_its_disk_is_no_disk(make_node: NodeFactory, first: Path, workspace: Path) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(mounted_image("ext4", workspace / "disk", BYTES))
        node = make_node(store__directory=first / "store", store__other_disks=disk).start()
        stack.callback(node.clean_up)
        (workdir,) = make(node, 0)
        node.stop()
        unmount(disk)
        node.expected_faults.append("is not there")
        node.start()
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.listdir(workdir)
        assert os.listdir(disk) == []
        node.stop()
        mount(disk)
        node.start()
        assert (workdir / "rocksdb" / workdir.name).read_bytes() == b"0"
        node.stop()
        if os.stat(workspace).st_dev == os.stat("/").st_dev:
            (workspace / "plain").mkdir()
            assert "is on the root file system" in refusal(node, store__other_disks=f"{disk},{workspace / 'plain'}")


def test_a_full_disk_is_no_lost_one(make_node: NodeFactory, first: Path, workspace: Path) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(mounted_image("ext4", workspace / "disk", BYTES, "-N", "256"))
        (disk / "holdfast").mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=disk / "holdfast").start()
        stack.callback(node.clean_up)
        (workdir,) = make(node, 0)
        files = (workdir / f"localState/{number}" for number in range(1000))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            deque(map(Path.touch, files), maxlen=0)  # takes the inodes
        made = sorted(os.listdir(workdir / "localState"))
        node.kill()
        node.start()
        assert sorted(os.listdir(workdir / "localState")) == made
        assert (workdir / "rocksdb" / workdir.name).read_bytes() == b"0"


@pytest.mark.promise("workdir-disks")
def test_a_directory_that_only_the_store_has_is_on_the_disk_of_its_working_directory(
    node: Node, disks: Disks, workspace: Path
) -> None:
    (workspace / "remote/blobs/remote").mkdir(parents=True, exist_ok=True)
    (workspace / "remote/blobs/remote/object").write_bytes(b"object")
    one, other = make(node, 0, 1)
    assert os.statvfs(one / "blobStorage/remote").f_blocks == os.statvfs(disks.of(one)).f_blocks
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        os.link(other / "rocksdb" / other.name, one / "blobStorage/remote/linked")
    assert os.listdir(workspace / "remote/blobs/remote") == ["object"]
    os.rename(one / "rocksdb" / one.name, one / "blobStorage/remote/renamed")
    assert (workspace / "remote/blobs/remote/renamed").read_bytes() == b"0"


def unmount(disk: Path) -> None:
    """Unmount a disk, once what a daemon had open is closed."""
    wait_until(lambda: subprocess.run(["umount", str(disk)], check=False).returncode == 0)


def mount(disk: Path) -> None:
    """Mount the image of a disk again."""
    subprocess.run(["mount", "-o", "loop", f"{disk}.img", str(disk)], check=True)


def refusal(node: Node, **settings: object) -> str:
    """Return why the daemon does not start with these settings."""
    with pytest.raises(StartError) as refused:
        node.start(**settings)
    return str(refused.value)


def test_what_can_be_no_other_disk_is_refused(disks: Disks, make_node: NodeFactory, workspace: Path) -> None:
    node = make_node(store__directory=disks.first / "store")
    one, other = disks.others
    (disks.first / "beside").mkdir()
    assert "is on the same file system as" in refusal(node, store__other_disks=disks.first / "beside")
    assert not (disks.first / "store").exists()
    (one.parent / "second").mkdir()
    assert "is on the same file system as" in refusal(node, store__other_disks=f"{one},{one.parent / 'second'}")
    assert "No such file or directory" in refusal(node, store__other_disks=one / "missing")
    (other / "trash").mkdir()
    (other / "trash/somebodys").touch()
    assert "is not empty (it holds trash)" in refusal(node, store__other_disks=other)
    assert os.listdir(other / "trash") == ["somebodys"]
    (other / "trash/somebodys").unlink()
    node.start(store__other_disks=f"{one},{other}")
    make(node, 0, 1, 2, 3)
    node.stop()
    assert f"does not name {other} any more" in refusal(node, store__other_disks=one)
    assert "belongs to another store" in refusal(
        make_node("b", store__directory=disks.first / "another"), store__other_disks=one
    )
    for name in disks.on(1):
        subprocess.run(["rm", "-r", str(other / "workdirs" / name)], check=True)
    node.expected_faults.append("is lost")
    node.start(store__other_disks=one)
    assert len(os.listdir(node.work)) == len(disks.on(0)) > 0
    node.stop()


def test_a_disk_is_used_by_one_daemon_at_a_time(node: Node, disks: Disks, make_node: NodeFactory) -> None:
    """Also by daemons whose stores have one id, because one was copied from the other."""
    (workdir,) = make(node, 0)
    copied = disks.first / "copied"
    copied.mkdir(mode=0o700)
    (copied / "format.json").write_bytes((node.store / "format.json").read_bytes())
    other = make_node("b", store__directory=copied)
    refused = refusal(other, store__other_disks=disks.others[0])
    assert f"the other disk {disks.others[0]} is in use by another daemon" in refused
    assert "stop that one with 'holdfast umount', or name another directory in store.other_disks" in refused
    assert (workdir / "rocksdb" / workdir.name).read_bytes() == b"0"
    node.kill()
    node.start()
    assert (workdir / "rocksdb" / workdir.name).read_bytes() == b"0"


def test_a_store_gets_disks_and_loses_them_again(disks: Disks, make_node: NodeFactory) -> None:
    node = make_node(store__directory=disks.first / "store").start()
    node.store = disks.first / "store"
    (before,) = make(node, 0)
    node.stop()
    version = (node.store / "format.json").read_bytes()
    node.start(store__other_disks=disks.others[0])
    assert (node.store / "format.json").read_bytes() != version
    assert (before / "rocksdb" / before.name).read_bytes() == b"0"
    (after,) = make(node, 1)
    assert disks.of(after).parent == disks.others[0] / "workdirs"
    subprocess.run(["rm", "-r", str(after)], check=True)
    node.stop()
    node.expected_faults.append("is lost")
    node.start()
    assert (node.store / "format.json").read_bytes() == version
    assert os.listdir(node.work) == [before.name]
    node.stop()


_WRITES = """
import os, sys
os.chdir(sys.argv[1])
number = 0
while True:
    number += 1
    with open(f"tmp/{number % 50}", "wb") as file:
        file.write(bytes(20_000))
        os.fsync(file.fileno())
    os.link(f"tmp/{number % 50}", f"rocksdb/{number}")
    os.rename(f"rocksdb/{number}", f"localState/{number % 20}")
    if number % 100 == 0:
        print(number, flush=True)
"""


@pytest.mark.promise("workdir-disk-fails")
def test_a_disk_that_is_pulled_out_under_load_ends_the_work_on_it_alone(
    first: Path, workspace: Path, make_node: NodeFactory, remote_files: Path
) -> None:
    with ExitStack() as stack:
        sound = stack.enter_context(mounted_image("ext4", workspace / "sound", BYTES))
        bad = stack.enter_context(RecordedDisk("ext4", workspace / "bad", workspace / "bad.img"))
        paths = {"sound": sound / "holdfast", "bad": bad.path / "holdfast"}
        for path in paths.values():
            path.mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=",".join(map(str, paths.values()))).start()
        stack.callback(node.clean_up)
        jobs: dict[Path, subprocess.Popen[str]] = {}
        for workdir in make(node, *range(4)):
            command = [sys.executable, "-c", _WRITES, str(workdir)]
            job = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            stack.callback(job.kill)
            assert job.stdout is not None
            assert job.stdout.readline()
            jobs[workdir] = job
        (remote_files / "object").write_bytes(b"object")
        on_bad = {path.name for path in (paths["bad"] / "workdirs").glob("*/rocksdb/worker_*")}
        assert 0 < len(on_bad) < 4
        bad.fail()
        failed = node.wait_event("disk-failed")
        assert (failed["disk"], failed["workdirs"]) == (str(paths["bad"]), len(on_bad))
        assert any(f"the disk {paths['bad']} has failed" in problem for problem in node.status().problems)
        for workdir, job in jobs.items():
            assert job.stdout is not None
            if workdir.name in on_bad:
                assert job.wait(30) != 0
            else:
                assert job.stdout.readline()
                assert job.stdout.readline()
                assert job.poll() is None
        wait_until(lambda: not any((node.work / name).exists() for name in on_bad))
        for name in on_bad:  # its process starts again
            (node.work / name).mkdir()
            (node.work / name / "tmp/file").write_bytes(b"anew")
            assert os.listdir(node.work / name / "rocksdb") == []
        assert (node.checkpoints / "object").read_bytes() == b"object"
        node.expected_faults.append("is lost")
        node.kill()
        node.start()
        assert node.wait_event("disk-lost")["disk"] == str(paths["bad"])
        assert sorted(os.listdir(node.work)) == sorted(workdir.name for workdir in jobs)
        assert {(node.work / name / "tmp/file").read_bytes() for name in on_bad} == {b"anew"}


def test_a_full_disk_is_full_for_those_who_work_there_alone(
    make_node: NodeFactory, first: Path, workspace: Path, remote_files: Path
) -> None:
    with ExitStack() as stack:
        large = stack.enter_context(mounted_image("ext4", workspace / "large", BYTES))
        (large / "holdfast").mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=large / "holdfast").start()
        stack.callback(node.clean_up)
        (remote_files / "object").write_bytes(b"o" * 1_000_000)
        assert (node.checkpoints / "object").read_bytes() == b"o" * 1_000_000
        (workdir,) = make(node, 0)
        with (workdir / "tmp/large").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, BYTES // 2)  # twice what the first disk has
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                os.posix_fallocate(file.fileno(), 0, 2 * BYTES)
            free = os.statvfs(workdir / "tmp")
            os.posix_fallocate(file.fileno(), 0, BYTES // 2 + free.f_bavail * free.f_frsize - (1 << 20))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (workdir / "tmp/more").write_bytes(bytes(100 << 20))
        assert node.status().counters["files_evicted"] == 0
        (node.checkpoints / "another").write_bytes(b"there is room")
        (workdir / "tmp/large").unlink()
        (workdir / "tmp/more").write_bytes(b"there is room")
        assert (node.checkpoints / "object").read_bytes() == b"o" * 1_000_000


def test_a_daemon_that_takes_over_goes_on_without_a_disk_that_is_gone(
    first: Path, workspace: Path, make_node: NodeFactory
) -> None:
    with ExitStack() as stack:
        bad = stack.enter_context(RecordedDisk("ext4", workspace / "bad", workspace / "bad.img"))
        (bad.path / "holdfast").mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=bad.path / "holdfast")
        node.supervised = True
        node.expected_faults.append("is lost")
        node.start()
        stack.callback(node.clean_up)
        (workdir,) = make(node, 0)
        assert os.listdir(node.work) == [workdir.name]
        with (workdir / "tmp/open").open("wb", buffering=0) as file:
            file.write(b"before")
            bad.fail()
            before = node.pid
            node.kill_daemon()
            wait_until(lambda: node.answers() and node.pid != before)
            assert node.wait_event("workdir-lost")["path"] == f"work/{workdir.name}"
            wait_until(lambda: not workdir.exists() and os.listdir(node.work) == [])
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                os.fsync(file.fileno())
        workdir.mkdir()
        assert os.listdir(workdir / "rocksdb") == []
        assert [disk.path for disk in node.status().other_disks if disk.problem] == [str(bad.path / "holdfast")]


def test_what_a_crash_leaves_is_mended_at_the_next_start(node: Node, disks: Disks) -> None:
    made = make(node, *range(3))
    places = [disks.of(workdir) for workdir in made]
    node.kill()
    (disks.others[0] / "workdirs/of-no-path/deep").mkdir(parents=True)
    subprocess.run(["rm", "-r", str(places[1])], check=True)  # as before its placeholder is removed
    (node.store / "tree/work" / made[0].name).rmdir()  # as after a power cut: only what was fsynced is there
    node.start()
    assert sorted(os.listdir(node.work)) == [workdir.name for workdir in made]
    assert os.listdir(made[1]) == []
    assert {disks.of(made[0]), disks.of(made[2])} == {places[0], places[2]}
    assert (made[0] / "rocksdb" / made[0].name).read_bytes() == b"0"
    assert "of-no-path" not in disks.on(0)
    assert os.listdir(disks.others[0] / "trash/aside-of-no-path") == ["deep"]
    assert "aside-of-no-path" in node.wait_event("not-deleted")["problem"]
    made[1].rmdir()
    make(node, 1)
    node.stop()
    (node.store / "disks.json").write_bytes(b"{")
    assert "disks.json is damaged" in refusal(node)
    (node.store / "disks.json").unlink()
    node.expected_faults.append("is lost")
    node.start()
    assert sorted(os.listdir(node.work)) == [workdir.name for workdir in made]
    assert (made[0] / "rocksdb" / made[0].name).read_bytes() == b"0"


def test_status_and_metrics_tell_of_each_disk(node: Node, disks: Disks) -> None:
    make(node, 0, 1, 2)
    with node.client() as client:
        found, page = client.status().other_disks, client.metrics()
    assert [(disk.path, disk.problem, disk.workdirs) for disk in found] == [
        (str(path), "", len(disks.on(number))) for number, path in enumerate(disks.others)
    ]
    for disk in found:
        space = os.statvfs(disk.path)
        assert disk.size_bytes == space.f_blocks * space.f_frsize
        assert 0 < disk.free_bytes < disk.size_bytes
        assert f'holdfast_other_disk_up{{disk="{disk.path}"}} 1' in page
        assert f'holdfast_other_disk_size_bytes{{disk="{disk.path}"}} {disk.size_bytes}' in page
