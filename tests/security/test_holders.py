"""Who holds a working directory: a process as the kernel knows it, whatever that process or another one says."""

from __future__ import annotations

import array
import ctypes
import os
import shutil
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.processes.descriptors import no_free_descriptors
from tests.support.users.attackers import attacking, kill, running
from tests.support.users.privileges import ALICE, MALLORY, User

_ACQUIRES = 100
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_READY, _LONGEST = b".", 65_536
_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_DUMPABLE, _SET_NAME = 4, 15  # linux/prctl.h
_NEW_USER, _NEW_PID = 0x1000_0000, 0x2000_0000  # linux/sched.h


def made_by(user: User, home: Path, node: Node) -> None:
    """Let a process of ``user`` make the working directory ``home``, and end."""
    user.do(home.mkdir)
    node.wait_event("workdir-released", path=f"work/{home.name}")


# --- processes of others ----------------------------------------------------------------------------------------------


@pytest.mark.promise("workdir-processes")
def test_a_member_of_the_group_holds_for_no_process_of_another_user(node: Node) -> None:
    """Gain: a directory that is held for as long as a service of root runs, by what everybody takes for that service."""
    os.chown(node.socket, 0, MALLORY.gid)

    def tries(pid: int) -> None:
        with node.client() as client, pytest.raises(HoldfastError, match="a process of another user"):
            client.acquire("driver", "m", pid)

    node.status()  # what the client imports late is closed to others
    with running(ALICE) as alices:
        for pid in (1, node.pid, alices):
            MALLORY.do(partial(tries, pid))
    assert os.listdir(node.work) == []


@pytest.mark.promise("workdir-processes")
def test_a_process_that_proc_shows_as_roots_is_its_users_all_the_same(node: Node, workspace: Path) -> None:
    """Gain: what root acquires for Mallory's process is root's own directory, which is emptied then, and held by Mallory.

    A set-id program that Mallory runs has root's effective user id.
    """
    if os.statvfs(workspace).f_flag & os.ST_NOSUID:
        pytest.skip("set-id programs have no effect here")
    set_id = workspace / "sleep"
    shutil.copy(shutil.which("sleep") or "", set_id)
    set_id.chmod(0o4755)
    (node.work / "driver_roots").mkdir()
    (node.work / "driver_roots/tmp/file").touch()
    with running(MALLORY, lambda: os.execv(set_id, ["sleep", "infinity"])) as pid, node.client() as client:
        wait_until(lambda: os.stat(f"/proc/{pid}").st_uid == 0)
        client.release("driver", "roots")
        client.acquire("driver", "m", pid)
        assert (node.work / "driver_m").stat().st_uid == MALLORY.uid
        with pytest.raises(HoldfastError, match=f"belongs to user 0, not to user {MALLORY.uid}"):
            client.acquire("driver", "roots", pid)
    assert (node.work / "driver_roots/tmp/file").exists()


@pytest.mark.promise("workdir-processes")
@pytest.mark.parametrize("name", [b"m\rTgid:\t1", b"m\x0cTgid:\t1\x0c", b"m\nTgid:\t1", b"\x85Tgid:\t1"])
def test_the_name_of_a_program_says_nothing_about_its_number(node: Node, name: bytes) -> None:
    """Gain: a directory of Mallory's that is held by the process 1, and so for as long as the machine runs."""

    def makes() -> None:
        _LIBC.prctl(_SET_NAME, name, 0, 0, 0)
        (node.work / "driver_m").mkdir()

    with running(MALLORY, makes) as pid, node.client() as client:
        assert (client.workdirs()[0].holder or "").startswith(f"pid {pid} ")
    node.wait_event("workdir-released", path="work/driver_m")


@pytest.mark.promise("workdir-processes")
@pytest.mark.parametrize("flags", [_NEW_USER, _NEW_USER | _NEW_PID], ids=["user", "user and pid"])
def test_root_of_a_namespace_holds_as_the_user_that_it_is(node: Node, flags: int) -> None:
    """Gain: directories of root, or of everybody, by a namespace in which Mallory is root."""
    os.chown(node.socket, 0, MALLORY.gid)
    made_by(ALICE, node.work / "driver_x", node)

    def becomes_root() -> None:
        _LIBC.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
        if _LIBC.unshare(flags):
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/uid_map").write_text(f"0 {MALLORY.uid} 1")
        assert os.getuid() == 0

    def tries() -> None:
        (node.work / "driver_made").mkdir()
        with node.client() as client:
            for name, uid, adopt in (("x", -1, False), ("x", -1, True), ("y", 0, False), ("y", ALICE.uid, False)):
                with pytest.raises(HoldfastError, match=f"only root|belongs to user {ALICE.uid}"):
                    client.acquire("driver", name, os.getpid(), uid, adopt=adopt)
            client.acquire("driver", "asked", os.getpid())

    def attack() -> None:
        becomes_root()
        if not flags & _NEW_PID:
            return tries()
        reader, writer = os.pipe()
        if os.fork() == 0:  # only children are in the new namespace
            try:
                tries()
                os.write(writer, _READY)
            except BaseException:  # noqa: BLE001 all of it is told to the parent
                os.write(writer, traceback.format_exc().encode())
            signal.pause()
        said = os.read(reader, _LONGEST)
        assert said == _READY, said.decode()
        return None

    try:
        MALLORY.do(becomes_root)
    except AssertionError as problem:
        pytest.skip(f"users may make no such namespaces here: {problem}")
    with running(MALLORY, attack) as pid, node.client() as client:
        for name in ("driver_made", "driver_asked"):
            assert (node.work / name).stat().st_uid == MALLORY.uid
        assert {Path(found.path).name for found in client.workdirs() if found.holder} == {"driver_made", "driver_asked"}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    node.wait_event("workdir-released", path="work/driver_made")
    node.wait_event("workdir-released", path="work/driver_asked")


# --- processes that have ended ----------------------------------------------------------------------------------------


@pytest.mark.promise("workdir-processes")
def test_a_process_that_nobody_waits_for_holds_nothing(node: Node) -> None:
    """Gain: a directory that is held with no process that anybody could end."""

    def makes() -> None:
        if os.fork() == 0:
            (node.work / "driver_m").mkdir()
            os._exit(0)

    with running(MALLORY, makes):
        node.wait_event("workdir-released", path="work/driver_m")
        with node.client() as client:
            assert client.acquire("driver", "m", os.getpid(), MALLORY.uid, MALLORY.gid).holder


@pytest.mark.promise("workdir-processes")
def test_a_later_process_with_the_same_number_holds_nothing(node: Node) -> None:
    """Gain: a directory that stays held, by a process that has nothing to do with it."""
    if not _LAST_PID.exists():
        pytest.skip("this kernel lets nobody choose the number of a process")
    made_by(MALLORY, node.work / "driver_m", node)
    with node.client() as client, running(MALLORY) as first:
        client.acquire("driver", "m", first)
        node.kill()
        kill(first)
        second = _with_number(first)
        try:
            node.start()
            assert [found.holder for found in client.workdirs()] == [None]
        finally:
            kill(second)


def _with_number(wanted: int) -> int:
    """Fork until the child has the number ``wanted``; return it. It sleeps until it is killed."""
    while True:
        _LAST_PID.write_text(str(wanted - 1))
        pid = os.fork()
        if pid == 0:
            signal.pause()
        if pid == wanted:
            return pid
        kill(pid)


@pytest.mark.promise("expiry-goes-on")
def test_a_directory_that_was_made_for_nobody_goes_too(make_node: NodeFactory) -> None:
    """Gain: room that nobody gets back, by a process that is killed in mkdir(2), or a mkdir(2) that fails half-way."""
    node = make_node(workdirs__retain_seconds=0).start()

    def makes() -> None:
        with pytest.raises(OSError, match=r"Too many|temporarily|Errno"):
            (node.work / "driver_m").mkdir()

    (node.work / "plain").mkdir()
    with no_free_descriptors(node.pid):
        MALLORY.do(makes)
    MALLORY.do((node.work / "driver_another").mkdir)
    wait_until(lambda: os.listdir(node.work) == ["plain"])


# --- the directory and its lease --------------------------------------------------------------------------------------


@pytest.mark.promise("workdir-leases")
def test_nobody_else_moves_removes_or_replaces_a_directory_that_is_held(node: Node) -> None:
    """Gain: Alice's process goes on in a directory of Mallory's, or loses its own."""
    home = node.work / "driver_x"
    made_by(MALLORY, node.work / "driver_m", node)
    with running(ALICE) as pid, node.client() as client:
        client.acquire("driver", "x", pid)
        inode, comm = home.stat().st_ino, Path(f"/proc/{pid}/comm").read_text().strip()

        def tries() -> None:
            mine = node.work / "driver_m"
            (node.work / "plain").mkdir()
            for attempt in (
                lambda: home.rename(node.work / "gone"),
                lambda: home.rename(mine / "tmp/gone"),
                lambda: mine.rename(home),
                lambda: (node.work / "plain").rename(home),
                lambda: (home / "tmp").rename(mine / "tmp/gone"),
                lambda: (mine / "tmp").rename(home / "tmp"),
                home.rmdir,
                (home / "tmp").rmdir,
                (home / ".lease").unlink,
                lambda: os.link(home / ".lease", mine / "tmp/lease"),
                lambda: (home / ".lease").chmod(0o444),
                lambda: os.setxattr(home, "user.holdfast.workdir", b""),
                lambda: os.setxattr(mine, "user.holdfast.workdir", b""),
            ):
                with pytest.raises(OSError, match=r"Errno"):
                    attempt()

        MALLORY.do(tries)
        assert home.stat().st_ino == inode
        assert [found.holder for found in client.workdirs() if found.path == str(home)] == [f"pid {pid} ({comm})"]


@pytest.mark.promise("workdir-leases")
def test_who_was_handed_a_lease_keeps_its_owner_from_nothing_for_good(node: Node) -> None:
    """Gain: Alice's next process never gets its directory back, since a descriptor of it was passed on."""
    home = node.work / "driver_x"
    made_by(ALICE, home, node)
    here, there = socket.socketpair()
    with here, there:

        def passes_on() -> None:
            with (home / ".lease").open("rb") as lease:
                there.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lease.fileno()]))])

        def takes() -> None:
            _, ancillary, _, _ = here.recvmsg(1, socket.CMSG_SPACE(4))
            assert ancillary

        ALICE.do(passes_on)
        with running(MALLORY, takes), node.client() as client:
            with pytest.raises(HoldfastError, match=r"it has \.lease open"):
                client.acquire("driver", "x", os.getpid(), ALICE.uid, ALICE.gid)
            ALICE.do(partial(shutil.rmtree, home))
            assert client.acquire("driver", "x", os.getpid(), ALICE.uid, ALICE.gid).holder


@pytest.mark.promise("workdir-leases")
def test_a_lease_that_is_closed_under_another_name_ends_the_hold(make_node: NodeFactory) -> None:
    """Gain: a directory that stays for ever, without a process that uses it."""
    node = make_node(workdirs__retain_seconds=0).start()
    home = node.work / "driver_m"

    def opens() -> None:
        reader, writer = os.pipe()
        maker = os.fork()
        if maker == 0:
            home.mkdir()
            os.write(writer, _READY)
            signal.pause()
        os.read(reader, 1)
        os.open(home / ".lease", os.O_RDONLY)
        kill(maker)

    with running(MALLORY, opens), node.client() as client:
        wait_until(lambda: "it has .lease open" in (client.workdirs()[0].holder or ""))
        MALLORY.do(lambda: (home / ".lease").rename(home / "tmp/other"))
    MALLORY.do((node.work / "driver_another").mkdir)
    wait_until(lambda: not home.exists())


# --- several at once --------------------------------------------------------------------------------------------------


@pytest.mark.promise("workdir-processes")
def test_of_several_who_acquire_at_once_one_gets_it(node: Node) -> None:
    """Gain: two processes on the same state."""
    with running(ALICE) as one, running(ALICE) as another:
        for number in range(_ACQUIRES):
            got: list[int] = []
            start = threading.Barrier(2)

            def acquires(pid: int, number: int = number, got: list[int] = got, start: threading.Barrier = start) -> None:
                with node.client() as client, suppress(HoldfastError):
                    start.wait()
                    client.acquire("driver", str(number), pid)
                    got.append(pid)

            threads = [threading.Thread(target=acquires, args=(pid,)) for pid in (one, another)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(got) == 1


@pytest.mark.promise("expiry-safe")
def test_a_directory_that_is_acquired_while_it_expires_is_whole(make_node: NodeFactory) -> None:
    """Gain: a process that works in a directory that is being deleted. Mallory makes the daemon expire all the time."""
    node = make_node(workdirs__retain_seconds=0).start()
    home = node.work / "driver_x"

    def makes(number: int) -> None:
        child = os.fork()
        if child == 0:
            with suppress(OSError):
                (node.work / f"driver_m{number % 3}").mkdir()
            os._exit(0)
        os.waitpid(child, 0)

    with running(ALICE) as pid, attacking(MALLORY, makes), node.client() as client:
        for _ in range(_ACQUIRES):
            client.acquire("driver", "x", pid)
            (home / "tmp/file").touch()
            assert sorted(os.listdir(home)) == [".lease", "blobStorage", "localState", "rocksdb", "tmp"]
            assert [found.holder for found in client.workdirs() if found.path == str(home)] != [None]
            client.release("driver", "x")


@pytest.mark.promise("workdir-owner")
@pytest.mark.parametrize(
    "take",
    [lambda name: name.symlink_to("../../../outside"), lambda name: name.symlink_to("nowhere"), Path.touch, os.mkfifo],
    ids=["link to a directory", "dangling link", "file", "fifo"],
)
def test_a_name_that_is_taken_by_something_else_is_refused(
    node: Node, workspace: Path, take: Callable[[Path], object]
) -> None:
    """Gain: root works in a directory of Mallory's choice; or the daemon fails at a name that is no directory."""
    outside, name = workspace / "outside", node.work / "driver_x"
    (outside / "tmp").mkdir(parents=True)
    (outside / "tmp/file").touch()
    MALLORY.do(partial(take, name))
    with node.client() as client:
        for adopt in (False, True):
            with pytest.raises(HoldfastError, match="is not a directory"):
                client.acquire("driver", "x", os.getpid(), ALICE.uid, ALICE.gid, adopt=adopt)
        with pytest.raises(HoldfastError, match="there is no working directory"):
            client.release("driver", "x")
        assert client.workdirs() == []
    assert os.listdir(outside) == ["tmp"]
    assert os.listdir(outside / "tmp") == ["file"]
    assert outside.stat().st_uid == 0
