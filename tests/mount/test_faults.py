"""Corruption, lost indexes, stores that are away: what is served, what is refused, and what is never lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_objects import commit, objects
from tests.support.checkpoints import hostile_zips
from tests.support.checkpoints.checkpoint_roots import put
from tests.support.daemons.faults.switches import SWITCHES
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_read_only
from tests.support.spark import files as spark_files


def flip(path: Path, offset: int = 0) -> None:
    """Flip a bit of a file on the disk, behind the daemon's back, and hide the traces."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.promise("corrupt-copy")
def test_a_corrupt_copy_is_dropped_and_fetched_again(node: Node) -> None:
    path = node.checkpoints / "state.zip"
    path.write_bytes(b"precious bytes")
    flip(node.backing(path), 3)
    assert path.read_bytes() == b"precious bytes"
    assert node.status().counters["corrupt_dropped"] == 1
    assert node.events("quarantined")[0]["path"] == "checkpoints/state.zip"
    kept = [file for file in (node.store / "quarantine").iterdir() if file.suffix != ".json"]
    assert kept[0].read_bytes() == b"prebious bytes"


def immutable(path: Path, *, on: bool) -> None:
    subprocess.run(["chattr", "+i" if on else "-i", path], check=True)


@pytest.mark.promise("background-refused")
def test_a_late_send_that_the_disk_refuses_is_told_and_tried_again(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node(checkpoints__durability="async").start()
    path, backing = node.checkpoints / "state", node.store / "tree/checkpoints/state"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"precious bytes")
    immutable(backing, on=True)
    try:
        with pytest.raises(PermissionError):
            os.close(fd)  # it can't be marked as unsent, nor in the background
        assert node.wait_event("unsent")["path"] == "checkpoints/state"
        node.kill()
        node.start()
        assert path.read_bytes() == b"precious bytes"
    finally:
        immutable(backing, on=False)
    with path.open("r+b"):
        pass
    wait_until(lambda: objects(remote_files) == {"state": b"precious bytes"})


@pytest.mark.promise("background-refused")
def test_a_link_in_place_of_what_was_to_be_sent_keeps_no_other_from_being_sent(
    make_node: NodeFactory, remote_files: Path
) -> None:
    node = make_node(checkpoints__durability="async").start()
    first, second = node.checkpoints / "first", node.checkpoints / "second"
    remote_files.mkdir(parents=True, exist_ok=True)
    with mounted_read_only(remote_files, remote_files):
        first.write_bytes(b"first")
        second.write_bytes(b"second")
        node.wait_event("send-delayed", path="checkpoints/first")
        node.kill()
    backing = node.store / "tree/checkpoints/first"
    backing.rename(backing.with_name("elsewhere"))
    backing.symlink_to("elsewhere")
    node.start()
    wait_until(lambda: objects(remote_files) == {"second": b"second"})


@pytest.mark.parametrize("harmless", ["list", "chmod", "rename", "link", "xattr"])
def test_a_harmless_change_does_not_hide_corruption(node: Node, harmless: str) -> None:
    node.stop()
    node.start(remote__metadata_ttl_seconds=0)
    path = node.checkpoints / "state.zip"
    path.write_bytes(b"precious bytes")
    flip(node.backing(path), 3)
    if harmless == "list":
        assert [entry.stat().st_size for entry in os.scandir(node.checkpoints)] == [14]
    elif harmless == "chmod":
        path.chmod(0o600)
    elif harmless == "rename":
        path.rename(path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    elif harmless == "link":
        os.link(path, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").unlink()
    else:
        os.setxattr(path, "user.note", b"harmless")
    assert path.read_bytes() == b"precious bytes"
    assert node.status().counters["corrupt_dropped"] == 1


def test_a_copy_of_another_length_is_fetched_again_whole(node: Node) -> None:
    path = node.checkpoints / "state.zip"
    path.write_bytes(b"precious bytes")
    node.stop()
    os.truncate(node.backing(path), 3)
    node.start()
    assert path.stat().st_size == len(b"precious bytes")
    assert path.read_bytes() == b"precious bytes"


@pytest.mark.promise("corrupt-copy")
def test_corruption_while_the_daemon_was_down_is_found_at_the_first_open(node: Node) -> None:
    path = node.checkpoints / "state.zip"
    path.write_bytes(b"precious bytes")
    node.stop()
    flip(node.backing(path))
    node.start()
    assert path.read_bytes() == b"precious bytes"
    assert node.status().counters["corrupt_dropped"] == 1


@pytest.mark.promise("corrupt-object")
def test_a_corrupt_object_is_never_served(node: Node, remote_files: Path) -> None:
    path = node.checkpoints / "state.zip"
    path.write_bytes(b"precious bytes")
    with node.client() as client:
        list(client.evict(str(path)))
    flip(remote_files / "state.zip")
    with pytest.raises(OSError, match="Input/output") as problem:
        path.read_bytes()
    assert problem.value.errno == errno.EIO
    assert node.events("corrupt-arrival")
    flip(remote_files / "state.zip")
    assert path.read_bytes() == b"precious bytes"


@pytest.mark.promise("miss")
def test_a_corrupt_chunk_is_never_served_while_the_rest_arrives(make_node: NodeFactory, remote_files: Path) -> None:
    writer = make_node("a").start()
    data = os.urandom(24 << 20)
    (writer.checkpoints / "large").write_bytes(data)
    flip(remote_files / "large", 20 << 20)
    reader = make_node("b", remote__read_while_arriving_bytes=1 << 20).start()
    with (reader.checkpoints / "large").open("rb") as file:
        assert file.read(1 << 20) == data[: 1 << 20]
        file.seek(20 << 20)
        with pytest.raises(OSError, match="Input/output"):
            file.read(10)
    flip(remote_files / "large", 20 << 20)
    assert (reader.checkpoints / "large").read_bytes() == data


@pytest.mark.promise("corrupt-copy")
def test_corruption_without_another_copy_is_eio(node: Node) -> None:
    workdir = node.work / "worker_1"
    workdir.mkdir()
    path = workdir / "localState" / "000001.sst"
    path.write_bytes(b"local bytes")
    node.wait_digest(path)
    node.stop()
    flip(node.backing(path))
    node.start()
    with pytest.raises(OSError, match="Input/output") as problem:
        path.read_bytes()
    assert problem.value.errno == errno.EIO


def test_verify_finds_what_nobody_opened(node: Node) -> None:
    paths = [node.checkpoints / f"{number}.zip" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(b"bytes %d" % number)
    flip(node.backing(paths[3]))
    with node.client() as client:
        # whoever closes a file does not wait for the release of its last handle
        wait_until(lambda: all(client.entry(str(path)).state == "cached" for path in paths))
        steps = list(client.verify(None))
    assert [Path(step.path).name for step in steps if step.problem] == ["3.zip"]
    assert steps[-1].done == 5
    assert (node.checkpoints / "3.zip").read_bytes() == b"bytes 3"


@pytest.mark.promise("index-lost")
@pytest.mark.parametrize("damage", ["lost", "garbage", "torn"])
def test_a_lost_index_is_rebuilt_and_nothing_is_fetched_again(node: Node, damage: str) -> None:
    for number in range(3):
        (node.checkpoints / f"{number}.zip").write_bytes(b"bytes %d" % number)
    node.stop()
    if damage == "lost":
        shutil.rmtree(node.store / "index")
    elif damage == "garbage":
        (node.store / "index/data.mdb").write_bytes(os.urandom(65536))
    else:
        os.truncate(node.store / "index/data.mdb", 4096)
    node.start()
    for number in range(3):
        assert (node.checkpoints / f"{number}.zip").read_bytes() == b"bytes %d" % number
    assert node.requests().get("GET", 0) == 0
    with node.client() as client:
        assert {entry.state for entry in client.entries(str(node.checkpoints))} == {"cached"}


@pytest.mark.promise("vouched-copies")
def test_a_copy_that_nothing_vouches_for_is_fetched_again_after_a_lost_index(node: Node, remote_files: Path) -> None:
    (remote_files / "others").write_bytes(b"somebody else's")
    path = node.checkpoints / "others"
    assert path.read_bytes() == b"somebody else's"
    os.removexattr(node.backing(path), "user.holdfast.digest")
    node.stop()
    shutil.rmtree(node.store / "index")
    node.start()
    assert path.read_bytes() == b"somebody else's"
    assert node.requests()["GET"] == 1
    assert node.wait_event("unproven-dropped") == {"path": "checkpoints/others"}


def test_a_copy_that_was_noted_with_its_digest_is_kept_after_a_lost_index(node: Node, remote_files: Path) -> None:
    (remote_files / "others").write_bytes(b"somebody else's")
    (node.work / "worker_1").mkdir()
    paths = [node.checkpoints / "others", node.work / "worker_1/localState/others"]
    assert [path.read_bytes() for path in paths] == [b"somebody else's"] * 2
    node.stop()
    shutil.rmtree(node.store / "index")
    node.start()
    assert [path.read_bytes() for path in paths] == [b"somebody else's"] * 2
    assert node.requests().get("GET", 0) == 0


def test_a_copy_whose_time_has_changed_is_still_known_after_a_lost_index(node: Node, remote_files: Path) -> None:
    (remote_files / "others").write_bytes(b"somebody else's")
    (node.work / "worker_1").mkdir()
    path = node.work / "worker_1/localState/others"
    assert path.read_bytes() == b"somebody else's"
    backing = node.backing(path)
    os.utime(backing, ns=(0, 10**18))
    assert path.read_bytes() == b"somebody else's"
    node.stop()
    shutil.rmtree(node.store / "index")
    backing.write_bytes(b"somebody elSe's")
    os.utime(backing, ns=(0, 10**18))
    node.start()
    assert path.read_bytes() == b"somebody else's"


@pytest.mark.promise("vouched-copies")
def test_what_is_written_to_a_copy_stays_after_a_lost_index(node: Node, remote_files: Path) -> None:
    (remote_files / "others").write_bytes(b"somebody else's")
    (node.work / "worker_1").mkdir()
    path = node.work / "worker_1/localState/others"
    with path.open("r+b") as file:
        file.write(b"now mine")
    node.stop()
    shutil.rmtree(node.store / "index")
    node.start()
    assert path.read_bytes() == b"now mine else's"
    assert not node.events("quarantined")


@pytest.mark.promise("index-lost")
def test_unsent_bytes_are_not_forgotten_with_the_index(node: Node, remote_files: Path) -> None:
    file = (node.checkpoints / "unsent").open("wb")
    file.write(b"never closed")
    file.flush()
    node.kill()
    with pytest.raises(OSError, match=r"not connected|connection abort"):
        file.close()
    shutil.rmtree(node.store / "index")
    assert objects(remote_files) == {}
    node.start()
    assert (node.checkpoints / "unsent").read_bytes() == b"never closed"
    assert node.status().unsent == [str(node.checkpoints / "unsent")]
    with (node.checkpoints / "unsent").open("ab") as again:
        again.write(b"!")
    assert objects(remote_files) == {"unsent": b"never closed!"}
    assert node.status().unsent == []


@pytest.mark.promise("index-lost")
def test_a_file_that_differs_from_the_store_after_a_lost_index_is_kept_aside(node: Node) -> None:
    path = node.checkpoints / "3.zip"
    path.write_bytes(b"old")
    node.stop()
    shutil.rmtree(node.store / "index")
    node.backing(path).write_bytes(b"who knows")
    node.start()
    assert path.read_bytes() == b"old"
    kept = [file for file in (node.store / "quarantine").iterdir() if file.suffix != ".json"]
    assert [file.read_bytes() for file in kept] == [b"who knows"]


@pytest.mark.promise("dead-mount")
def test_a_crash_of_the_daemon_loses_no_committed_file(node: Node) -> None:
    (node.checkpoints / "q/offsets").mkdir(parents=True)
    commit(node.checkpoints / "q/offsets/0", b"zero")
    (node.work / "worker_1").mkdir()
    (node.work / "worker_1/localState/copy").write_bytes(b"copy")
    node.kill()
    node.start()
    assert (node.checkpoints / "q/offsets/0").read_bytes() == b"zero"
    assert (node.work / "worker_1/localState/copy").read_bytes() == b"copy"
    assert node.requests().get("GET", 0) == 0


@pytest.mark.promise("dead-mount")
def test_a_dead_mount_is_taken_away_by_the_next_start(node: Node) -> None:
    os.kill(node.pid, 9)
    node._process.wait()  # type: ignore[union-attr]
    with pytest.raises(OSError, match=r"not connected|connection abort"):
        os.listdir(node.mountpoint)
    node.start()
    assert "checkpoints" in os.listdir(node.mountpoint)


def test_the_scrub_finds_what_nobody_opens(node: Node) -> None:
    for name in ("intact", "corrupt"):
        (node.checkpoints / name).write_bytes(name.encode())
    node.stop()
    flip(node.backing(node.checkpoints / "corrupt"))
    node.start(integrity__scrub_bytes_per_second=2**20)
    assert node.wait_event("scrubbed") == {"files": 2, "bytes": 6, "corrupt": 1}
    assert node.events("quarantined")[0]["path"] == "checkpoints/corrupt"
    assert (node.checkpoints / "corrupt").read_bytes() == b"corrupt"


def test_quarantine_expires(node: Node) -> None:
    (node.checkpoints / "corrupt").write_bytes(b"corrupt")
    flip(node.backing(node.checkpoints / "corrupt"))
    assert (node.checkpoints / "corrupt").read_bytes() == b"corrupt"
    assert node.status().quarantined == 1
    node.stop()
    node.start()
    assert node.status().quarantined == 1
    node.stop()
    node.start(integrity__quarantine_seconds=0)
    assert node.wait_event("quarantine-expired") == {"files": 1}
    assert list((node.store / "quarantine").iterdir()) == []


@pytest.mark.parametrize("name", ["a" * 300, r"a\u0000b", "a" * 100_000])
def test_a_snapshot_that_names_what_no_file_can_be_called_does_not_end_the_daemon(
    node: Node, remote_files: Path, name: str
) -> None:
    store = Path("q/state/0/0")
    ssts = [put(remote_files / store / f"SSTs/{number}-a.sst", b"a table").name for number in (1, 3)]
    put(remote_files / store / "1.zip", spark_files.snapshot(ssts[:1]))
    put(remote_files / store / "2.zip", hostile_zips.snapshot_of([name]))
    put(remote_files / store / "3.zip", spark_files.snapshot(ssts[1:]))
    here = node.store / "tree/checkpoints" / store / "SSTs"
    (node.checkpoints / store / "1.zip").read_bytes()
    wait_until((here / ssts[0]).exists)
    (node.checkpoints / store / "2.zip").read_bytes()
    (node.checkpoints / store / "3.zip").read_bytes()
    wait_until((here / ssts[1]).exists)


def test_the_daemon_ends_on_a_signal_although_a_thread_hangs_in_a_library(make_node: NodeFactory, workspace: Path) -> None:
    node = make_node()
    node.faults = ["hung_library"]
    node.environment = {SWITCHES: str(workspace)}
    node.start()
    (workspace / "hangs").touch()
    reader = subprocess.Popen(["stat", str(node.checkpoints / "directory/file")], stderr=subprocess.PIPE)
    wait_until((workspace / "held").exists)
    node.terminate()
    assert reader.communicate()[1], "the request has failed"
    assert "stopping on SIGTERM" in node.log.read_text()
