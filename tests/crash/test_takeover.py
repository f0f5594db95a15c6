"""A mount that outlives its daemon: nobody who works in it notices a SIGKILL but by a short wait."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.control.client import RefusedError
from holdfast.errors import StoreInUseError
from holdfast.mount import mountpoint
from holdfast.session import SessionArea
from holdfast.store import StoreDirectory
from holdfast_spark.session import acquire, checkpoint_location
from tests.conftest import NodeFactory
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, StartError, settle, wait_until
from tests.support.processes.children import children_of


def supervised(make_node: NodeFactory, faults: Sequence[str] = (), **settings: object) -> Node:
    node = make_node(**settings)
    node.faults = list(faults)
    node.supervised = True
    return node.start()


@contextmanager
def no_daemon(node: Node) -> Iterator[None]:
    """The daemon is dead, and its supervisor does not get to start another one."""
    node.signal_supervisor(signal.SIGSTOP)
    try:
        node.kill_daemon()
        yield
    finally:
        node.signal_supervisor(signal.SIGCONT)


def test_names_and_open_files_go_on_after_a_kill(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    directory = node.work / "one"
    directory.mkdir()
    (directory / "file").write_bytes(b"before")
    inode = (directory / "file").stat().st_ino
    with (directory / "file").open("r+b", buffering=0) as file:
        node.kill_daemon()
        assert file.read() == b"before"
        file.write(b" and after")
        assert os.fstat(file.fileno()).st_size == 16
        assert sorted(os.listdir(directory)) == ["file"]
        assert (directory / "file").stat().st_ino == inode
    assert (directory / "file").read_bytes() == b"before and after"
    (directory / "file").rename(directory / "moved")
    assert [fields["open_files"] for fields in node.events("taken-over")] == [1]


@pytest.mark.parametrize("new", ["over", "new"])
def test_a_directory_that_an_earlier_daemon_knew_goes_on_while_its_only_file_moves(new: str, make_node: NodeFactory) -> None:
    node = supervised(make_node)
    (node.work / "one").mkdir()
    for name in ("file", "over"):
        (node.work / "one" / name).write_bytes(name.encode())
        node.backing(node.work / "one" / name)  # closed: else the next daemon would know the directory by it
    node.kill_daemon()
    wait_until(node.answers)
    (node.work / "one").rename(node.work / "two")  # the first that this daemon hears of the directory
    (node.work / "two/file").rename(node.work / "two" / new)
    (node.work / "two").rename(node.work / "three")
    os.mkfifo(node.work / "three/passing")
    os.unlink(node.work / "three/passing")
    os.link(node.work / "three" / new, node.work / "link")
    assert (node.work / "link").read_bytes() == b"file"


@pytest.mark.parametrize("name", ["plain", "offsets/7", f"1_{uuid.uuid4()}.zip"])
def test_what_is_evicted_after_a_kill_can_be_renamed_and_removed(name: str, make_node: NodeFactory) -> None:
    node = supervised(make_node)
    path = node.checkpoints / "query" / name
    path.parent.mkdir(parents=True)
    for change in (path.unlink, lambda: path.rename(path.with_name("other.tmp"))):
        path.write_bytes(b"evicted")
        node.kill_daemon()
        wait_until(node.answers)
        with node.client() as client:
            assert list(client.evict(str(node.checkpoints)))[-1].done == 1
        change()
        assert not path.exists()


def test_what_the_kernel_has_not_yet_been_told_of_can_be_renamed_and_removed(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    for name in ("a", "b"):
        (node.checkpoints / name).write_bytes(b"evicted")
    node.kill_daemon()
    wait_until(node.answers)
    (teller,) = children_of(node.pid, b"invalidator")
    os.kill(teller, signal.SIGSTOP)
    try:
        with node.client() as client:
            assert list(client.evict(str(node.checkpoints)))[-1].done == 2
        (node.checkpoints / "a").unlink()
        (node.checkpoints / "b").rename(node.checkpoints / "c.tmp")
        assert (node.checkpoints / "c.tmp").read_bytes() == b"evicted"
    finally:
        os.kill(teller, signal.SIGCONT)


@pytest.mark.parametrize("name", ["checkpoints/plain", "checkpoints/offsets/7", "blobs/job/blob_p-1"])
def test_what_only_the_store_has_goes_for_good_though_another_daemon_told_of_it(name: str, make_node: NodeFactory) -> None:
    node = supervised(make_node, remote__metadata_ttl_seconds=3600)
    path = node.mountpoint / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"evicted")
    with node.client() as client:
        assert list(client.evict(str(path)))[-1].done == 1
    path.stat()
    node.kill_daemon()
    wait_until(node.answers)
    path.unlink()
    assert not path.exists()
    assert os.listdir(path.parent) == []
    settle(path.parent)
    assert not path.exists()


@pytest.mark.promise("takeover")
def test_open_files_work_while_there_is_no_daemon(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    if node.status().data_mode != "passthrough":
        pytest.skip("the daemon serves the data")
    (node.work / "file").write_bytes(bytes(8192))
    with (node.work / "file").open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), 8192) as mapped:
        os.pwrite(file.fileno(), b"before", 0)
        with no_daemon(node):
            os.pwrite(file.fileno(), b"while", 4096)
            assert os.pread(file.fileno(), 6, 0) == b"before"
            mapped[0:6] = b"mapped"
        assert (node.work / "file").read_bytes()[0:6] == b"mapped"
    assert (node.work / "file").read_bytes()[4096:4101] == b"while"


def test_what_was_written_without_a_daemon_is_sent(make_node: NodeFactory, remote_files: Path) -> None:
    node = supervised(make_node)
    with (node.checkpoints / "file").open("w+b", buffering=0) as file:
        file.write(b"before")
        node.kill_daemon()
        file.write(b" and after")
    assert (remote_files / "file").read_bytes() == b"before and after"
    with (node.checkpoints / "file").open("r+b", buffering=0) as file:
        node.kill_daemon()
        assert file.read() == b"before and after"
    wait_until(lambda: node.status().unsent == [])


@pytest.mark.promise("changes-sent")
@pytest.mark.parametrize("size_bytes", [8192, 1 << 20])
def test_what_is_written_through_a_mapping_after_a_takeover_is_sent(
    make_node: NodeFactory, remote_files: Path, size_bytes: int
) -> None:
    """The kernel tells only of the first write into a page, which came before the file was sent by the earlier daemon."""
    node = supervised(make_node)
    path = node.checkpoints / "mapped"
    path.write_bytes(bytes(size_bytes))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), size_bytes)
        mapping[:5] = b"first"
    assert (remote_files / "mapped").read_bytes()[:5] == b"first"
    node.kill_daemon()
    mapping[:5] = b"later"
    mapping.close()
    assert path.read_bytes()[:5] == b"later"
    wait_until(lambda: (remote_files / "mapped").read_bytes()[:5] == b"later")
    wait_until(lambda: node.status().unsent == [])
    node.stop()
    node.start()
    assert path.read_bytes()[:5] == b"later"
    assert node.events("quarantined") == []


@pytest.mark.parametrize("durability", ["commit", "async"])
def test_what_can_not_be_opened_again_is_not_sent_as_if_it_were_empty(
    make_node: NodeFactory, remote_files: Path, durability: str
) -> None:
    node = make_node(checkpoints__durability=durability)
    node.faults = ["no_reopening"]
    node.supervised = True
    node.start()
    path = node.checkpoints / "file"
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.write(file, b"sent")
    os.fsync(file)
    os.write(file, b" and written")
    first = node.pid
    node.kill_daemon()
    wait_until(lambda: node.answers() and node.pid != first)
    with pytest.raises(OSError, match="Input/output error"):
        path.rename(node.checkpoints / "other")
    with pytest.raises(OSError, match="Input/output error"):
        os.close(file)
    node.wait_event("unsent", path="checkpoints/file")
    assert (remote_files / "file").read_bytes() == b"sent"
    assert path.read_bytes() == b"sent and written"
    with path.open("r+b") as again:
        os.fsync(again)
    assert (remote_files / "file").read_bytes() == b"sent and written"


@pytest.mark.parametrize("faults", [[], ["ids_beside_inode_numbers"]])
def test_links_locks_and_files_without_a_name_stay(faults: list[str], make_node: NodeFactory) -> None:
    node = supervised(make_node, faults)
    at = node.work / "one"
    at.mkdir()
    (at / "a").write_bytes(b"linked")
    os.link(at / "a", at / "b")
    with (at / "locked").open("w+b") as locked, (at / "nameless").open("w+b", buffering=0) as nameless:
        fcntl.flock(locked, fcntl.LOCK_EX)
        fcntl.lockf(locked, fcntl.LOCK_EX)
        os.unlink(at / "nameless")
        nameless.write(b"kept")
        node.kill_daemon()
        assert os.pread(nameless.fileno(), 10, 0) == b"kept"
        assert os.fstat(nameless.fileno()).st_nlink == 0
        assert (at / "a").stat().st_nlink == 2
        assert (at / "a").samefile(at / "b")
        os.unlink(at / "a")
        assert ((at / "b").stat().st_nlink, (at / "b").read_bytes()) == (1, b"linked")
        with (at / "locked").open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    wait_until(lambda: not os.listdir(node.store / "orphans"))


def test_a_working_directory_is_still_held(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    with node.client() as client:
        client.acquire("worker", "1", os.getpid())
    (node.work / "worker_1/tmp/file").write_bytes(b"kept")
    node.kill_daemon()
    wait_until(node.answers)
    with node.client() as client:
        assert client.workdirs()[0].holder is not None
        client.acquire("worker", "1", os.getpid())
    assert (node.work / "worker_1/tmp/file").read_bytes() == b"kept"


def test_a_spark_job_that_starts_while_there_is_no_daemon_waits_for_the_next_one(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    node.kill_daemon()
    assert acquire("driver", "flights", str(node.socket)).holder is not None
    assert checkpoint_location("flights", str(node.socket)) == f"file://{node.checkpoints}/flights"


@pytest.mark.promise("workdir-holders")
def test_a_working_directory_is_held_by_its_lease_though_the_index_is_lost(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    with node.client() as client, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        workdir = Path(client.acquire("worker", "1", process.pid).path)
        with (workdir / ".lease").open():
            process.communicate()
            wait_until(lambda: "a process that cat started" in str(client.workdirs()[0].holder))
            (workdir / "rocksdb/file").write_bytes(b"in use")
            with no_daemon(node):
                (node.store / "index/data.mdb").unlink()
            wait_until(node.answers)
            assert client.workdirs()[0].released is None
            with pytest.raises(RefusedError, match="a process that cat started"):
                client.acquire("worker", "1", os.getpid())
            assert (workdir / "rocksdb/file").read_bytes() == b"in use"
        node.wait_event("workdir-released", path="work/worker_1")


def test_one_mount_over_many_daemons_leaks_nothing(make_node: NodeFactory) -> None:
    """Handles, descriptors and ids: what each daemon inherits ends with the last handle."""
    node = supervised(make_node)
    at = node.work / "one"
    at.mkdir()
    for number in range(5):
        with (at / "file").open("w+b", buffering=0) as first, (at / "file").open("rb") as second:
            first.write(b"%d" % number)
            node.kill_daemon()
            assert second.read() == b"%d" % number
        (at / "file").rename(at / "other")
        os.unlink(at / "other")
    wait_until(node.answers)
    node.kill_daemon()
    wait_until(node.answers)
    assert [fields["open_files"] for fields in node.events("taken-over")] == [0]


def test_a_daemon_dies_while_the_kernel_is_to_forget_a_name_in_a_locked_directory(make_node: NodeFactory) -> None:
    """The lock's holder waits for the next daemon; nothing that holds up the end of this one may wait for the lock."""
    node = make_node()
    node.supervised = True
    node.faults = ["dies_while_a_name_waits"]
    armed = node.directory / "armed"
    node.environment = {ARMED: str(armed)}
    node.start()
    (node.work / "here").mkdir()
    (node.work / "here/a").write_bytes(b"kept")
    before = node.pid
    armed.write_text(str((node.work / "here").stat().st_ino))
    subprocess.run(["ln", "-s", "a", node.work / "here/link"], check=True, timeout=60)
    assert not armed.exists()
    wait_until(node.answers)
    assert node.pid != before
    assert (node.work / "here/link").read_bytes() == b"kept"


def test_a_mount_that_one_daemon_could_not_connect_is_the_next_ones(make_node: NodeFactory) -> None:
    node = make_node()
    node.supervised = True
    node.faults = ["no_invalidator"]
    node.expected_faults += ["CRITICAL", "Traceback", "  File "]
    armed = node.directory / "armed"
    node.environment = {ARMED: str(armed)}
    node.start()
    with (node.work / "file").open("w+b", buffering=0) as file:
        armed.touch()
        node.kill_daemon()
        file.write(b"kept")
        assert not armed.exists()
        assert os.pread(file.fileno(), 4, 0) == b"kept"
    assert len(node.events("taken-over")) == 1


def test_the_session_of_the_version_before_is_taken_over_and_is_then_refused_there(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    with (node.work / "file").open("w+b", buffering=0) as file:
        identity = node.session / "mount"
        identity.write_text(identity.read_text().replace('"format":2', '"format":1'))
        assert '"format":1' in identity.read_text()
        node.kill_daemon()
        file.write(b"kept")
        wait_until(lambda: '"format":2' in identity.read_text())
    wait_until(node.answers)  # it writes that down before it can be asked
    node.wait_event("taken-over")
    assert len(node.events("taken-over")) == 1


# --- when it can't be ------------------------------------------------------------------------------------------------


def other_session(node: Node) -> None:
    (node.session / "mount").write_text('{"format": 0}')


def no_session(node: Node) -> None:
    (node.session / "mount").unlink()


def other_start(node: Node) -> None:
    (node.session / "start").write_bytes(b"of another program")


def other_opens(node: Node) -> None:
    (node.session / "opens").write_bytes(bytes(48))


def other_store(node: Node) -> None:
    node.lose_disk()


@pytest.mark.parametrize("break_it", [other_session, no_session, other_start, other_opens, other_store])
def test_a_mount_that_can_not_be_taken_over_is_made_afresh(break_it: Callable[[Node], None], make_node: NodeFactory) -> None:
    node = supervised(make_node)
    (node.checkpoints / "file").write_bytes(b"stored")
    with (node.checkpoints / "file").open("rb", buffering=0) as old:
        with no_daemon(node):
            break_it(node)
        wait_until(node.answers)
        assert (node.checkpoints / "file").read_bytes() == b"stored"
        with pytest.raises(OSError, match=os.strerror(errno.ENOTCONN)):
            os.fstatvfs(old.fileno())  # which the kernel never answers by itself
    assert bool(node.events("takeover-failed")) == (break_it is not no_session)
    node.kill_daemon()
    assert (node.checkpoints / "file").read_bytes() == b"stored"
    assert node.events("taken-over")


@pytest.mark.promise("dead-mount")
def test_a_lost_descriptor_is_a_fresh_mount(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    (node.work / "file").write_bytes(b"kept")
    node.signal_supervisor(signal.SIGKILL)
    node.kill_orphan()
    node.start()
    assert (node.work / "file").read_bytes() == b"kept"
    assert [fields["why"] for fields in node.events("takeover-failed")] == ["nobody has kept its descriptor"]


def test_a_daemon_whose_supervisor_is_dead_says_so_and_does_not_leave_its_mount(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    with (node.work / "file").open("w+b", buffering=0) as file:
        assert node.status().takeover == "takeover"
        node.signal_supervisor(signal.SIGKILL)
        node.wait_end()
        assert node.status().takeover.startswith("no takeover: nobody holds the mount")
        with node.client() as client, pytest.raises(RefusedError, match="can't outlive the daemon"):
            client.restart()
        file.write(b"kept")
        assert os.pread(file.fileno(), 4, 0) == b"kept"
    (node.work / "after").mkdir()
    node.unmount()


def test_a_dead_mount_is_not_taken_away_before_the_next_one_can_come(make_node: NodeFactory) -> None:
    """Else whoever works there would find, and fill, the empty directory underneath."""
    node = supervised(make_node)
    (node.work / "file").write_bytes(b"kept")
    node.signal_supervisor(signal.SIGKILL)
    node.kill_orphan()
    in_use = StoreDirectory.open(node.store)
    try:
        with pytest.raises(StartError, match="in use"):
            node.start()
        with pytest.raises(OSError, match=os.strerror(errno.ENOTCONN)):
            os.listdir(node.mountpoint)
    finally:
        in_use.close()
    node.start()
    assert (node.work / "file").read_bytes() == b"kept"


def test_a_supervisor_that_is_told_to_end_leaves_no_mount(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    node.terminate()
    assert not node.mountpoint.is_mount()
    assert list(node.socket.parent.iterdir()) == []


def test_a_supervisor_that_is_told_to_end_without_a_daemon_leaves_no_mount(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    node.signal_supervisor(signal.SIGSTOP)
    node.kill_daemon()
    node.signal_supervisor(signal.SIGTERM)
    node.signal_supervisor(signal.SIGCONT)
    node.wait_end()
    assert not node.mountpoint.is_mount()


@pytest.mark.promise("takeover-mount")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["there", "elsewhere"])
def test_a_start_by_hand_while_the_daemon_is_dead_leaves_the_mount_to_the_next_one(
    elsewhere: bool, make_node: NodeFactory
) -> None:
    node = supervised(make_node)
    rival = make_node()
    if elsewhere:
        (node.directory / "other").mkdir()
        rival.settings["mount.mountpoint"] = node.directory / "other"
    with (node.work / "file").open("w+b", buffering=0) as file:
        with no_daemon(node), pytest.raises(StartError, match="its daemon is started again by itself"):
            rival.start()
        file.write(b"kept")
        assert os.pread(file.fileno(), 4, 0) == b"kept"
    assert os.listdir(node.work) == ["file"]
    assert len(node.events("taken-over")) == 1


def claims(rival: SessionArea) -> bool:
    """Claim a dead daemon's session; it may be held for a moment by a child that the daemon was just starting."""
    try:
        rival.claim()
    except StoreInUseError:
        return False
    return True


def test_a_daemon_whose_session_is_anothers_ends_at_once_and_is_started_again(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    rival = SessionArea(node.session)
    with no_daemon(node):
        wait_until(lambda: claims(rival))
    wait_until(lambda: "another daemon uses" in node.log.read_text())
    rival.release()
    assert os.listdir(node.work) == []
    assert len(node.events("taken-over")) == 1


@pytest.mark.promise("takeover-mount")
def test_a_lazy_unmount_without_a_daemon_ends_the_supervisor_although_files_are_open(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    with (node.work / "file").open("wb"):
        with no_daemon(node):
            mountpoint.detach(str(node.mountpoint))
        node.wait_end()
        assert not node.mountpoint.is_mount()
    assert list(node.socket.parent.glob("holder-*")) == []
    node.start()
    assert (node.work / "file").exists()


@pytest.mark.promise("takeover-mount")
def test_what_is_unmounted_while_the_next_daemon_starts_stays_unmounted(make_node: NodeFactory) -> None:
    node = make_node()
    node.supervised = True
    node.faults = ["unmounted_at_start"]
    armed = node.directory / "armed"
    node.environment = {ARMED: str(armed)}
    node.start()
    with (node.work / "file").open("wb"):
        armed.touch()
        node.kill_daemon()
        node.wait_end()
        assert not armed.exists()
        assert not node.mountpoint.is_mount()
    assert not node.session.exists()


def test_an_unmount_without_a_daemon_ends_the_supervisor(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    with no_daemon(node):
        node.unmount()
    node.wait_end()
    assert not node.mountpoint.is_mount()
