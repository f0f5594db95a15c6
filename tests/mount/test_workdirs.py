"""Working directories: found again, emptied where they must be, held by one process at a time, removed in the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.cli.exit_status import ExitStatus
from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import WorkdirInfo
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, StartError, wait_until
from tests.support.processes.descriptors import no_free_descriptors, pidfds
from tests.support.users.privileges import as_nobody

SLEEP = "import signal; signal.pause()"
SLEEP_WITHOUT_MAIN_THREAD = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@contextmanager
def sleeper(program: str = SLEEP) -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed, at the latest at the end of the block."""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            yield process
        finally:
            process.kill()


def fill(workdir: Path) -> None:
    for name in ("tmp", "rocksdb", "localState", "blobStorage", "slotAllocationSnapshots"):
        (workdir / name / "deep").mkdir(parents=True, exist_ok=True)
        (workdir / name / "deep" / "file").write_bytes(name.encode())


def holders_and_times(client: ControlClient) -> list[WorkdirInfo]:
    """Return all that is known of the working directories, but for what they take of the disk: that is counted anew."""
    return [msgspec.structs.replace(workdir, used_bytes=None, used_files=None) for workdir in client.workdirs()]


def test_any_user_makes_a_working_directory_of_his_own(node: Node) -> None:
    workdir = node.work / "worker_1"
    as_nobody(workdir.mkdir)
    as_nobody(lambda: (workdir / "tmp/file").write_bytes(b"mine"))
    assert workdir.stat().st_uid == (workdir / "tmp/file").stat().st_uid != 0
    assert node.work.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.promise("workdir-acquire")
def test_mkdir_makes_a_working_directory(node: Node) -> None:
    workdir = node.work / "tm_taskmanager-1"
    workdir.mkdir()
    assert sorted(os.listdir(workdir)) == [".lease", "blobStorage", "localState", "rocksdb", "tmp"]
    with node.client() as client:
        assert [info.path for info in client.workdirs()] == [str(workdir)]


@pytest.mark.promise("workdir-names")
def test_a_name_without_a_role_is_a_plain_directory(node: Node) -> None:
    (node.work / "plain").mkdir()
    assert os.listdir(node.work / "plain") == []
    (node.work / "plain").rename(node.work / "renamed")
    (node.work / "renamed").rmdir()


def test_a_file_that_leaves_blob_storage_leaves_the_store_alone(node: Node, workspace: Path) -> None:
    workdir = node.work / "worker_x"
    workdir.mkdir()
    keys = ("x", "blobStorage/x", "worker_x/blobStorage/x", "orker_x/blobStorage/x")
    for key in keys:
        (node.blobs / key).parent.mkdir(parents=True, exist_ok=True)
        (node.blobs / key).write_bytes(b"of others")
    (workdir / "blobStorage/y").write_bytes(b"y")
    for name in ("x", "y"):
        assert (workdir / "blobStorage" / name).exists()
        (workdir / "blobStorage" / name).rename(workdir / "rocksdb" / name)
        assert not (workdir / "blobStorage" / name).exists()
    node.stop()
    assert all((workspace / "remote/blobs" / key).read_bytes() == b"of others" for key in keys)
    assert (workspace / "remote/blobs/y").read_bytes() == b"y"
    node.start()
    assert os.listdir(workdir / "blobStorage") == []
    assert not any((workdir / "blobStorage" / name).exists() for name in ("x", "y"))


def test_a_name_that_was_removed_from_blob_storage_can_be_made_anew(node: Node) -> None:
    workdir = node.work / "worker_x"
    workdir.mkdir()
    path, other = workdir / "blobStorage/x", workdir / "rocksdb/other"
    other.write_bytes(b"new")

    def make_exclusively() -> None:
        with path.open("xb") as file:
            file.write(b"new")

    for make in (lambda: os.link(other, path), make_exclusively, lambda: path.write_bytes(b"new")):
        (node.blobs / "x").write_bytes(b"of others")
        assert path.read_bytes() == b"of others"
        path.unlink()
        make()
        assert path.read_bytes() == b"new"
        path.unlink()
        with node.client() as client:
            client.release("worker", "x")
            client.acquire("worker", "x", os.getpid())
        other.write_bytes(b"new")


@pytest.mark.promise("workdir-acquire")
def test_a_restarted_process_finds_its_directory_with_the_volatile_parts_empty(node: Node) -> None:
    with node.client() as client, sleeper() as first:
        workdir = Path(client.acquire("worker", "host-7078", first.pid).path)
        fill(workdir)
        first.kill()
        node.wait_event("workdir-released", path="work/worker_host-7078")
        with sleeper() as second:
            assert client.acquire("worker", "host-7078", second.pid).path == str(workdir)
    assert os.listdir(workdir / "tmp") == []
    assert os.listdir(workdir / "rocksdb") == []
    for name in ("localState", "blobStorage", "slotAllocationSnapshots"):
        assert (workdir / name / "deep" / "file").read_bytes() == name.encode()


@pytest.mark.promise("workdir-holders")
def test_a_directory_survives_the_daemon_and_so_does_its_holder(node: Node) -> None:
    with node.client() as client, sleeper() as holder:
        workdir = Path(client.acquire("worker", "1", holder.pid).path)
        fill(workdir)
        node.kill()
        node.start()
        (info,) = client.workdirs()
        assert info.holder is not None
        assert str(holder.pid) in info.holder
        assert (workdir / "tmp/deep/file").read_bytes() == b"tmp", "a living process keeps what it is using"
        holder.kill()
        node.wait_event("workdir-released")


@pytest.mark.promise("workdir-holders", "index-lost")
def test_holders_and_times_are_known_when_the_index_is_lost(node: Node) -> None:
    with node.client() as client, sleeper() as first, sleeper() as second:
        workdir = Path(client.acquire("worker", "held", first.pid).path)
        fill(workdir)
        client.acquire("worker", "released", first.pid)
        client.release("worker", "released")
        before = holders_and_times(client)
        node.kill()
        with (node.store / "index/data.mdb").open("r+b") as index:
            index.write(bytes(8192))
        node.start()
        assert len(node.events("index-renewed")) == 1
        assert holders_and_times(client) == before
        with pytest.raises(RefusedError, match=f"held by pid {first.pid}"):
            client.acquire("worker", "held", second.pid)
        assert (workdir / "rocksdb/deep/file").read_bytes() == b"rocksdb"
        first.kill()
        node.wait_event("workdir-released", path="work/worker_held")
        client.acquire("worker", "held", second.pid)


@pytest.mark.promise("workdir-holders")
def test_nobody_sees_what_is_noted_on_a_directory(node: Node) -> None:
    workdir = node.work / "worker_1"
    workdir.mkdir()
    assert os.listxattr(node.backing(workdir)) == ["user.holdfast.workdir"]
    assert os.listxattr(workdir) == []
    with pytest.raises(OSError, match="No data"):
        os.getxattr(workdir, "user.holdfast.workdir")
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(workdir, "user.holdfast.workdir", b"")


@pytest.mark.promise("workdir-hold")
def test_a_second_live_holder_is_refused_by_name_of_the_first(node: Node) -> None:
    with node.client() as client, sleeper() as first, sleeper() as second:
        fill(Path(client.acquire("driver", "x", first.pid).path))
        with pytest.raises(RefusedError, match=rf"work/driver_x is held by pid {first.pid} \(python"):
            client.acquire("driver", "x", second.pid)
        assert (node.work / "driver_x/tmp/deep/file").exists(), "the holder's files are left alone"
        client.acquire("driver", "x", first.pid)
        assert (node.work / "driver_x/tmp/deep/file").exists(), "asking again changes nothing"


@pytest.mark.promise("workdir-hold")
def test_a_process_holds_its_directory_as_long_as_any_of_its_threads_lives(node: Node) -> None:
    with node.client() as client, sleeper(SLEEP_WITHOUT_MAIN_THREAD) as first, sleeper() as second:
        wait_until(lambda: "State:\tZ" in Path(f"/proc/{first.pid}/status").read_text())
        fill(Path(client.acquire("worker", "1", first.pid).path))
        for _ in range(2):
            with pytest.raises(RefusedError, match=f"held by pid {first.pid}"):
                client.acquire("worker", "1", second.pid)
            assert (node.work / "worker_1/rocksdb/deep/file").exists()
            node.kill()
            node.start()
        first.kill()
        node.wait_event("workdir-released", path="work/worker_1")
        client.acquire("worker", "1", second.pid)


def test_a_holder_costs_the_daemon_one_descriptor_while_it_holds_anything(node: Node) -> None:
    with node.client() as client, sleeper() as holder:
        for number in range(20):
            client.acquire("worker", str(number), holder.pid)
        wait_until(lambda: pidfds(node.pid) == 1)
        for number in range(20):
            client.release("worker", str(number))
        wait_until(lambda: pidfds(node.pid) == 0)
        client.acquire("worker", "1", holder.pid)
        for number in range(20):
            (node.work / f"tm_{number}").mkdir()
            shutil.rmtree(node.work / f"tm_{number}")
        wait_until(lambda: pidfds(node.pid) <= 2)
        holder.kill()
        node.wait_event("workdir-released", path="work/worker_1")
        wait_until(lambda: pidfds(node.pid) <= 1)


def test_all_that_a_process_held_is_released_with_it(node: Node) -> None:
    with node.client() as client, sleeper() as holder:
        for number in range(3):
            client.acquire("worker", str(number), holder.pid)
        holder.kill()
        for number in range(3):
            node.wait_event("workdir-released", path=f"work/worker_{number}")
        assert [info.holder for info in client.workdirs()] == [None] * 3


@pytest.mark.promise("workdir-holders")
def test_a_holder_that_ends_while_no_descriptor_is_free_is_noted_later(node: Node) -> None:
    with node.client() as client, sleeper() as holder:
        client.acquire("worker", "1", holder.pid)
        wait_until(lambda: pidfds(node.pid) == 1)
        with no_free_descriptors(node.pid):
            holder.kill()
            wait_until(lambda: "Too many open files" in node.log.read_text())
        node.wait_event("workdir-released", path="work/worker_1")


def test_a_directory_that_is_due_while_no_descriptor_is_free_goes_later(make_node: NodeFactory) -> None:
    node = make_node(workdirs__retain_seconds=3).start()
    with node.client() as client, sleeper() as holder:
        client.acquire("worker", "1", holder.pid)
        client.release("worker", "1")
        with no_free_descriptors(node.pid):
            wait_until(lambda: "Too many open files" in node.log.read_text())
        node.wait_event("workdir-removed", path="work/worker_1")
        assert not (node.work / "worker_1").exists()


@pytest.mark.promise("workdir-hold")
def test_the_lease_outlives_the_shell_that_took_it(node: Node) -> None:
    """As spark-env.sh does: a shell acquires, opens the lease file, starts a child, and ends."""
    script = """
        eval "$("$0" -m holdfast workdir acquire --role worker --id shell --pid $$ --shell)"
        exec {lease}<"$HOLDFAST_LEASE_FILE"
        "$0" -c 'import signal; signal.pause()' & echo $!
    """
    environment = {**os.environ, "HOLDFAST_SOCKET": str(node.socket)}
    shell = subprocess.Popen(
        ["bash", "-c", script, sys.executable], stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    )
    assert shell.stdout is not None
    child = int(shell.stdout.readline())
    shell.wait()
    with node.client() as client:
        assert client.workdirs()[0].holder is not None
        with sleeper() as other, pytest.raises(RefusedError, match="held by"):
            client.acquire("worker", "shell", other.pid)
        os.kill(child, 9)
        node.wait_event("workdir-released", path="work/worker_shell")
        assert client.workdirs()[0].holder is None
    shell.stdout.close()


@pytest.mark.promise("workdir-release")
def test_release_ends_the_hold_at_once(node: Node) -> None:
    with node.client() as client, sleeper() as first, sleeper() as second:
        client.acquire("worker", "1", first.pid)
        released = client.release("worker", "1")
        assert released.holder is None
        assert released.expires is not None
        client.acquire("worker", "1", second.pid)


@pytest.mark.promise("workdir-release")
def test_a_directory_that_is_released_while_its_lease_is_open_is_kept_from_the_close_on(make_node: NodeFactory) -> None:
    node = make_node(workdirs__retain_seconds=3600).start()
    with node.client() as client, sleeper() as holder:
        workdir = Path(client.acquire("worker", "1", holder.pid).path)
        with (workdir / ".lease").open():
            released = client.release("worker", "1")
            assert released.holder is not None
            assert released.released is None
            assert node.events("workdir-released") == []
            before_close = time.time()
        node.wait_event("workdir-released", path="work/worker_1")
        (info,) = client.workdirs()
        assert info.holder is None
        assert info.expires is not None
        assert info.expires >= before_close + 3600


@pytest.mark.promise("workdir-release")
def test_who_removes_a_directory_has_let_go_of_it(node: Node) -> None:
    with node.client() as client, sleeper() as first, sleeper() as second:
        workdir = Path(client.acquire("worker", "1", first.pid).path)
        shutil.rmtree(workdir)
        assert client.workdirs() == []
        with pytest.raises(RefusedError, match="no working directory"):
            client.release("worker", "1")
        assert Path(client.acquire("worker", "1", first.pid).path).is_dir()
        shutil.rmtree(workdir)
        taken = client.acquire("worker", "1", second.pid)
        assert (Path(taken.path) / "localState").is_dir()
        assert str(second.pid) in str(taken.holder)


@pytest.mark.promise("workdir-retention")
def test_a_directory_goes_after_its_retention_time(make_node: NodeFactory) -> None:
    node = make_node(workdirs__retain_seconds=3600, workdirs__roles__worker__retain_seconds=0).start()
    (node.work / "driver_1").mkdir()
    with node.client() as client, sleeper() as holder:
        workdir = Path(client.acquire("worker", "1", holder.pid).path)
        fill(workdir)
        with (workdir / "localState/deep/file").open("rb") as still_open:
            holder.kill()
            node.wait_event("workdir-removed", path="work/worker_1")
            assert not workdir.exists()
            assert still_open.read() == b"localState"
    assert os.listdir(node.work) == ["driver_1"]


def test_roles_have_bases_and_retention_of_their_own_and_fall_back(make_node: NodeFactory) -> None:
    node = make_node(workdirs__base="common", workdirs__roles__jm__base="managers").start()
    assert sorted(os.listdir(node.mountpoint)) == ["blobs", "checkpoints", "common", "managers"]
    with node.client() as client, sleeper() as holder:
        assert client.acquire("jm", "1", holder.pid).path == str(node.mountpoint / "managers/jm_1")
        assert client.acquire("tm", "1", holder.pid).path == str(node.mountpoint / "common/tm_1")


def test_flink_may_delete_its_own_directory(node: Node) -> None:
    workdir = node.work / "tm_1"
    workdir.mkdir()
    fill(workdir)
    shutil.rmtree(workdir)
    assert os.listdir(node.work) == []
    workdir.mkdir()
    assert "localState" in os.listdir(workdir)


@pytest.mark.promise("local-links")
def test_hard_links_between_rocksdb_tmp_and_local_state(node: Node) -> None:
    workdir = node.work / "tm_1"
    workdir.mkdir()
    sst = workdir / "rocksdb/000007.sst"
    sst.write_bytes(b"sorted")
    os.link(sst, workdir / "localState/000007.sst")
    os.link(workdir / "localState/000007.sst", workdir / "tmp/back.sst")
    assert {path.stat().st_ino for path in (sst, workdir / "localState/000007.sst", workdir / "tmp/back.sst")} == {
        sst.stat().st_ino
    }
    assert sst.stat().st_nlink == 3
    sst.unlink()
    assert (workdir / "localState/000007.sst").read_bytes() == b"sorted"
    node.wait_digest(workdir / "localState/000007.sst")


def test_a_file_that_never_keeps_still_does_not_keep_others_from_their_digests(node: Node) -> None:
    workdir = node.work / "tm_1"
    workdir.mkdir()
    growing, other = workdir / "localState/growing", workdir / "localState/other"
    done = threading.Event()
    with (workdir / "tmp/growing").open("wb", buffering=0) as file:
        file.truncate(256 << 20)
        file.seek(0, os.SEEK_END)

        def append() -> None:
            while not done.is_set():
                file.write(b"more")

        writer = threading.Thread(target=append)
        writer.start()
        try:
            os.link(workdir / "tmp/growing", growing)
            other.write_bytes(b"kept still")
            node.wait_digest(other)
        finally:
            done.set()
            writer.join()
    node.wait_digest(growing)
    assert node.events("quarantined") == []


def test_a_file_that_is_written_on_under_its_new_name_is_not_taken_for_corrupt(node: Node) -> None:
    workdir = node.work / "tm_1"
    workdir.mkdir()
    path, other = workdir / "localState/file", workdir / "localState/other"
    with (workdir / "tmp/file").open("wb", buffering=0) as file:
        file.write(b"first ")
        (workdir / "tmp/file").rename(path)
        other.write_bytes(b"hashed after it")
        node.wait_digest(other)
        file.write(b"second")
        os.fsync(file.fileno())
        node.kill()
    node.start()
    assert path.read_bytes() == b"first second"
    assert node.events("quarantined") == []


@pytest.mark.promise("fallback")
def test_local_state_falls_back_to_the_checkpoint_store(node: Node) -> None:
    (node.checkpoints / "job/chk-7").mkdir(parents=True)
    (node.checkpoints / "job/chk-7/state").write_bytes(b"from the store")
    workdir = node.work / "tm_1"
    workdir.mkdir()
    path = workdir / "localState/job/chk-7/state"
    assert os.listdir(workdir / "localState") == [], "what only shines through is not listed"
    assert path.read_bytes() == b"from the store"
    assert os.listdir(workdir / "localState/job/chk-7") == ["state"], "what was fetched is"
    path.unlink()
    assert not path.exists(), "deleted stays deleted for this process"
    assert (node.checkpoints / "job/chk-7/state").read_bytes() == b"from the store"
    (workdir / "localState/mine").mkdir()
    before = node.requests()
    for number in range(20):
        (workdir / f"localState/mine/{number}").write_bytes(b"x")
    assert node.requests() == before, "a directory made here has no counterpart in the store"


@pytest.mark.promise("fallback")
def test_blob_storage_sends_and_falls_back(make_node: NodeFactory) -> None:
    first, second = make_node("a").start(), make_node("b").start()
    name = f"job_1/blob_p-{'a' * 40}-{'b' * 32}"
    for node in (first, second):
        (node.work / "jm_1").mkdir()
    path = first.work / "jm_1/blobStorage" / name
    path.parent.mkdir()
    (first.work / "jm_1/blobStorage/incoming").mkdir()
    staged = first.work / "jm_1/blobStorage/incoming/temp-00000000"
    staged.write_bytes(b"jar")
    assert os.listdir(first.blobs) == []
    staged.rename(path)
    assert (second.blobs / name).read_bytes() == b"jar"
    assert (second.work / "jm_1/blobStorage" / name).read_bytes() == b"jar"
    (second.work / "jm_1/blobStorage" / name).unlink()
    assert (first.blobs / name).read_bytes() == b"jar", "a process that drops its copy leaves the store alone"


@pytest.mark.promise("workdir-names")
def test_the_root_of_a_zone_can_not_be_renamed(node: Node) -> None:
    workdir = node.work / "tm_1"
    workdir.mkdir()
    for source, target in (
        (workdir, node.work / "tm_2"),
        (workdir / "localState", workdir / "elsewhere"),
        (workdir / "blobStorage", workdir / "tmp/elsewhere"),
    ):
        with pytest.raises(OSError, match="busy"):
            source.rename(target)


def test_bad_names_and_processes_are_refused(node: Node) -> None:
    with node.client() as client:
        for role, resource_id, pid, word in (
            ("no_underscores", "1", os.getpid(), "role"),
            ("worker", "a/b", os.getpid(), "id"),
            ("worker", "", os.getpid(), "id"),
            ("worker", "x" * 250, os.getpid(), "255"),
            ("worker", "1", 2**22 + 5, "no process"),
        ):
            with pytest.raises(RefusedError, match=word):
                client.acquire(role, resource_id, pid)
    assert os.listdir(node.work) == []


@pytest.mark.promise("workdir-namespaces")
def test_a_process_that_the_daemon_can_not_see_gets_no_working_directory(make_node: NodeFactory) -> None:
    node = make_node()
    node.prefix = ["unshare", "--pid", "--fork", "--kill-child"]
    node.start()
    with pytest.raises(PermissionError):
        (node.work / "tm_1").mkdir()
    assert os.listdir(node.work) == []
    assert node.events("workdir-refused")[0]["path"] == "work/tm_1"
    (node.work / "plain").mkdir()
    (node.work / "plain/below_it").mkdir()


@pytest.mark.promise("workdir-namespaces")
def test_a_process_in_a_namespace_of_its_own_is_held_for_by_its_number_there(node: Node) -> None:
    script = '"$0" -m holdfast workdir acquire --role worker --id "$1"; read'
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script, sys.executable, "1"]
    environment = {**os.environ, "HOLDFAST_SOCKET": str(node.socket)}
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as container,
        node.client() as client,
    ):
        assert container.stdout is not None
        assert container.stdout.readline() == f"{node.work}/worker_1\n"
        shell = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().strip()
        assert client.workdirs()[0].holder == f"pid {shell} (bash)", "there it is 1"
        with pytest.raises(RefusedError, match="is held by"):
            client.acquire("worker", "1", os.getpid())
        container.communicate("\n")
        node.wait_event("workdir-released", path="work/worker_1")


@pytest.mark.promise("workdir-namespaces")
def test_a_number_that_the_daemon_does_not_see_in_the_namespace_of_who_asks_is_refused(node: Node) -> None:
    acquire = [sys.executable, "-m", "holdfast", "workdir", "acquire", "--role", "worker", "--id", "1"]
    asked = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *acquire, "--pid", str(os.getpid()), "--socket", node.socket],
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == ExitStatus.CONFIGURATION
    assert f"sees no process {os.getpid()} there" in asked.stderr
    assert "--pid host" in asked.stderr
    assert os.listdir(node.work) == []


@pytest.mark.promise("workdir-namespaces")
def test_a_daemon_in_a_namespace_of_its_own_gives_nothing_to_processes_outside(make_node: NodeFactory) -> None:
    node = make_node()
    node.prefix = ["unshare", "--pid", "--fork", "--kill-child"]
    node.start()
    with node.client() as client, pytest.raises(RefusedError, match="another process namespace"):
        client.acquire("worker", "1", os.getpid())
    assert os.listdir(node.work) == []


def test_two_daemons_on_one_local_store(node: Node, make_node: NodeFactory) -> None:
    other = make_node("other", store__directory=node.store)
    with pytest.raises(StartError, match=rf"in use by another daemon \(pid {node.pid}\)"):
        other.start()
    assert sorted(os.listdir(node.mountpoint)) == ["blobs", "checkpoints", "work"]


def test_a_name_that_is_no_text_is_a_plain_directory(node: Node) -> None:
    directory = os.fsencode(node.work) + b"/worker_\xff"
    os.mkdir(directory)
    assert os.listdir(directory) == []
    with node.client() as client:
        assert client.workdirs() == []


def test_a_fifo_in_place_of_the_lease_file_stops_nobody(node: Node) -> None:
    subprocess.run(["mkdir", node.work / "worker_1"], check=True)
    lease = node.work / "worker_1/.lease"
    lease.unlink()
    os.mkfifo(lease)
    with node.client() as client:
        assert client.acquire("worker", "1", os.getpid()).acquisitions == 2
