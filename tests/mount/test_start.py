"""Bad input at the start ends in one clear line that says what to do, and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.mount import mountpoint
from tests.conftest import NodeFactory
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, StartError, wait_until
from tests.support.disks.mounts import mounted, mounted_image
from tests.support.kernel.needs import needs_takeover


def refusal(node: Node, **settings: object) -> str:
    """Start a node that can't start; return what it says, after checking that nothing is left mounted."""
    with pytest.raises(StartError) as problem:
        node.start(**settings)
    assert mountpoint.mount_at(str(node.mountpoint)) is None or mountpoint.is_alive(str(node.mountpoint))
    message = str(problem.value)
    assert "\n" not in message, "one line"
    return message


def run_daemon(node: Node, *prefix: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run holdfastd to its end under the command ``prefix``."""
    command = [*prefix, sys.executable, "-m", *node.program, *options]
    for key, value in node.settings.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **node.environment})


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("cache__max_bytes", "lots", ["cache.max_bytes", "option", "512MiB"]),
        ("cache__max_byte", "1", ["cache.max_byte", "did you mean max_bytes"]),
        ("checkpoints__durability", "never", ["checkpoints.durability", "local, commit, async"]),
        ("checkpoints__url", "nonsense", ["nonsense", "s3://bucket/prefix"]),
        ("checkpoints__url", "s3://", ["bucket is missing"]),
        ("checkpoints__url", "gopher://x/y", ["gopher"]),
        ("log__level", "shout", ["log.level", "debug, info"]),
        ("remote__retry_deadline_seconds", "-1", ["remote.retry_deadline_seconds", "above 0"]),
        ("names__write_once", "**/<x>", ["<x>", "no word"]),
    ],
)
def test_a_wrong_setting(make_node: NodeFactory, setting: str, value: str, words: list[str]) -> None:
    message = refusal(make_node(), **{setting: value})
    assert all(word in message for word in words), message


def test_a_mountpoint_that_is_missing(make_node: NodeFactory) -> None:
    node = make_node()
    node.mountpoint.rmdir()
    assert f"mkdir -p {node.mountpoint}" in refusal(node)
    node.mountpoint.mkdir()


def test_a_mountpoint_that_is_no_directory(make_node: NodeFactory) -> None:
    node = make_node()
    node.mountpoint.rmdir()
    node.mountpoint.touch()
    assert "is not a directory" in refusal(node)


def test_a_mountpoint_that_is_in_use(make_node: NodeFactory) -> None:
    node = make_node()
    subprocess.run(["mount", "-t", "tmpfs", "none", node.mountpoint], check=True)
    try:
        assert "tmpfs is mounted there" in refusal(node)
    finally:
        subprocess.run(["umount", node.mountpoint], check=True)
    node.start()
    other = make_node("other", mount__mountpoint=node.mountpoint)
    assert "a running Holdfast is mounted there" in refusal(other)
    assert "checkpoints" in os.listdir(node.mountpoint)


@pytest.mark.parametrize("key", ["store.directory", "control.socket", "log.file", "checkpoints.url"])
def test_a_place_inside_the_mountpoint(make_node: NodeFactory, key: str) -> None:
    node = make_node()
    inside = f"{'file://' if key.endswith('url') else ''}{node.mountpoint}/inside"
    message = refusal(node, **{key.replace(".", "__"): inside})
    assert message.startswith(f"{key} (option): {node.mountpoint}/inside lies in the mountpoint {node.mountpoint}")
    assert os.listdir(node.mountpoint) == []


def test_a_mount_that_can_not_be_connected_is_taken_away(make_node: NodeFactory) -> None:
    node = make_node()
    node.faults = ["no_invalidator"]
    armed = node.directory / "armed"
    armed.touch()
    node.environment = {ARMED: str(armed)}
    assert "Resource temporarily unavailable" in run_daemon(node).stderr
    assert mountpoint.mount_at(str(node.mountpoint)) is None
    node.start()


def test_a_full_run_directory(make_node: NodeFactory) -> None:
    """Wherever the room ends between the first file of the session and the last, which is written after the mount."""
    node = make_node()
    refusals: list[str] = []
    for pages in range(2, 100):
        with mounted("tmpfs", node.socket.parent, "-o", f"mode=755,size={pages * os.sysconf('SC_PAGE_SIZE')}"):
            try:
                node.start()
            except StartError as problem:
                refusals.append(str(problem))
            else:
                node.stop()
                break
        assert mountpoint.mount_at(str(node.mountpoint)) is None
    assert len(refusals) > 4
    assert all("has no room, of bytes or of inodes: free some" in words for words in refusals)
    assert node.log.read_text().count("Traceback") == 0


def test_a_store_of_another_format_is_left_as_it_is(make_node: NodeFactory) -> None:
    node = make_node().start()
    (node.checkpoints / "x").write_bytes(b"x")
    node.stop()
    description = json.loads((node.store / "format.json").read_text())
    (node.store / "format.json").write_text(json.dumps({**description, "format": 99}))
    message = refusal(node)
    assert "has format 99" in message
    assert "install the version that wrote it, or set store.directory (--store) to a new directory" in message
    assert "keep this one" in message
    (node.store / "format.json").write_text(json.dumps(description))
    node.start()
    assert (node.checkpoints / "x").read_bytes() == b"x"
    assert node.requests().get("GET", 0) == 0


def test_a_store_in_a_directory_that_holds_something_else(make_node: NodeFactory) -> None:
    node = make_node()
    node.store.mkdir()
    (node.store / "thesis.txt").write_text("years of work")
    assert "is not empty and not a store (it holds thesis.txt)" in refusal(node)
    assert os.listdir(node.store) == ["thesis.txt"]


def test_a_store_on_tmpfs(make_node: NodeFactory, workspace: Path) -> None:
    volatile = workspace / "volatile"
    volatile.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", volatile], check=True)
    try:
        assert "on tmpfs, which a reboot empties" in refusal(make_node(), store__directory=volatile / "store")
    finally:
        subprocess.run(["umount", volatile], check=True)


def test_a_store_that_is_not_writable(make_node: NodeFactory) -> None:
    node = make_node()
    node.directory.chmod(0o555)
    may_not = "-dac_override,-dac_read_search,-fowner"
    result = run_daemon(node, "setpriv", f"--inh-caps={may_not}", f"--bounding-set={may_not}")
    assert result.returncode == 1
    assert "can't be used: Permission denied" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_where_the_root_of_a_zone_should_be(make_node: NodeFactory) -> None:
    node = make_node().start()
    node.stop()
    root = node.store / "tree/work"
    root.rmdir()
    root.write_bytes(b"kept")
    assert refusal(node) == f"{root} is no directory, but must be the root of the zone work; move it elsewhere"
    assert root.read_bytes() == b"kept"


@pytest.mark.parametrize("supervised", [False, True])
def test_a_file_where_the_session_should_be(supervised: bool, make_node: NodeFactory, workspace: Path) -> None:
    node = make_node(control__socket=workspace / "s")  # a supervisor's socket has no room for a longer path
    node.socket = workspace / "s"
    node.supervised = supervised
    node.session.touch()
    message = refusal(node)
    assert f"{node.session}, where the state of the mount is kept: Not a directory; " in message
    assert message.endswith("make it a directory that this user may write to, or set control.socket (--socket)")


def test_a_directory_where_the_index_should_be(make_node: NodeFactory) -> None:
    node = make_node().start()
    node.stop()
    (node.store / "index/data.mdb").rename(node.store / "index/kept")
    (node.store / "index/data.mdb").mkdir()
    message = refusal(node)
    assert message.startswith(f"the index in {node.store}/index can't be opened: ")
    assert message.endswith("or move it away: it is built anew")


def test_a_lost_index_on_a_full_disk(make_node: NodeFactory, workspace: Path) -> None:
    with mounted_image("ext4", workspace / "small", 64 << 20, "-m", "0") as place:
        node = make_node(store__directory=place / "store").start()
        node.stop()
        shutil.rmtree(place / "store/index")
        with suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        message = refusal(node)
        assert "No space left on device" in message
        assert "free some space" in message
        (place / "filler").unlink()
        node.start()
        node.stop()


def test_a_start_that_fails_by_a_fault_is_told(make_node: NodeFactory) -> None:
    node = make_node()
    node.faults = ["no_invalidator"]
    node.expected_faults += ["CRITICAL", "Traceback", "  File "]
    armed = node.directory / "armed"
    armed.touch()
    node.environment = {ARMED: str(armed)}
    message = refusal(node)
    assert message == (
        "the daemon ends by a fault of its own (BlockingIOError: [Errno 11] Resource temporarily unavailable); "
        "its log tells more"
    )
    assert "Traceback" in node.log.read_text()


def test_a_remote_directory_that_can_not_be_made(make_node: NodeFactory, workspace: Path) -> None:
    (workspace / "file").touch()
    message = refusal(make_node(), checkpoints__url=f"file://{workspace}/file/below")
    assert "can't be a remote store" in message


@pytest.mark.promise("disk-full")
def test_a_full_disk_is_enospc_and_loses_nothing(make_node: NodeFactory, workspace: Path) -> None:
    with mounted_image("ext4", workspace / "small", 64 << 20, "-m", "0") as place:
        node = make_node(store__directory=place / "store").start()
        workdir = node.work / "worker_1"
        workdir.mkdir()
        (workdir / "localState/kept").write_bytes(b"kept")
        (node.checkpoints / "kept").write_bytes(b"kept")
        with pytest.raises(OSError, match="No space left"):
            (workdir / "tmp/huge").write_bytes(bytes(80 << 20))
        assert (workdir / "localState/kept").read_bytes() == b"kept"
        (workdir / "tmp/huge").unlink()
        assert (node.checkpoints / "kept").read_bytes() == b"kept"  # the copy may have gone before the writer failed
        (workdir / "tmp/small").write_bytes(bytes(1 << 20))
        node.stop()


def test_systemd_is_told_when_the_mount_answers(make_node: NodeFactory, workspace: Path) -> None:
    node = make_node()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(workspace / "notify"))
        node.environment = {"NOTIFY_SOCKET": str(workspace / "notify"), "JOURNAL_STREAM": "9:1"}
        node.start()
        told = iter(lambda: systemd.recv(4096).decode(), "")
        ready = next(message for message in told if not message.startswith("FDSTORE=1"))
        assert ready == f"READY=1\nWATCHDOG=1\nSTATUS=mounted on {node.mountpoint}"
    levels = ("INFO holdfast", "WARNING holdfast")
    assert node.log.read_text().startswith(levels), "the journal has times of its own"


@needs_takeover
def test_systemd_gets_the_mounts_descriptor_first(make_node: NodeFactory, workspace: Path) -> None:
    node = make_node()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(workspace / "notify"))
        node.environment = {"NOTIFY_SOCKET": str(workspace / "notify")}
        node.start()
        message, descriptors, _, _ = socket.recv_fds(systemd, 4096, 2)
        device = node.mountpoint.stat().st_dev
        assert (message.decode(), len(descriptors)) == (f"FDSTORE=1\nFDNAME=holdfast-{device}", 1)
        os.close(descriptors[0])


@needs_takeover
@pytest.mark.promise("takeover-mount")
def test_systemd_starts_no_fresh_mount_where_one_was_unmounted(make_node: NodeFactory, workspace: Path) -> None:
    """It must take the end for one in order, which that of a daemon that was never ready is not; else it starts another."""
    node = make_node()
    systemctl = workspace / "systemctl"
    systemctl.write_text("#!/bin/sh\necho 1\n")
    systemctl.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(workspace / "notify"))
        node.environment = {"NOTIFY_SOCKET": str(workspace / "notify"), "PATH": f"{workspace}:{os.environ['PATH']}"}
        node.start()
        _, descriptors, _, _ = socket.recv_fds(systemd, 4096, 2)
        os.close(descriptors[0])
        assert systemd.recv(4096).startswith(b"READY=1")
        node.kill()  # and unmount
        assert run_daemon(node, options=["--unit", "holdfastd.service"]).returncode == 0
        assert systemd.recv(4096).decode() == (
            f"READY=1\nSTATUS={node.mountpoint} was unmounted while no daemon ran; start again to mount it"
        )
    assert mountpoint.mount_at(str(node.mountpoint)) is None
    node.environment = {}
    node.start()


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        ("true", "/dev/fuse can't be opened (No such file or directory): load the module (modprobe fuse)"),
        ("mknod -m 666 /dev/fuse c 1 3", "/dev/fuse is something else than FUSE's device: remove it, then: mknod -m 666"),
        ("mknod -m 0 /dev/fuse c 10 229", "/dev/fuse can't be opened (Permission denied): chmod 666 /dev/fuse, which is"),
    ],
    ids=["none", "another", "not permitted"],
)
def test_no_fuse_device(make_node: NodeFactory, device: str, complaint: str) -> None:
    """In a mount namespace of its own, whose /dev has hardly anything."""
    script = f'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && {device} && exec "$@"'
    no_override = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
    result = run_daemon(make_node(), "unshare", "--mount", "sh", "-c", script, "sh", *no_override)
    assert result.returncode == 1
    assert complaint in result.stderr


def test_root_without_the_right_to_mount(make_node: NodeFactory) -> None:
    result = run_daemon(make_node(), "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    assert result.returncode == 1
    assert "mounting takes CAP_SYS_ADMIN, which a container is given by docker run --cap-add SYS_ADMIN" in result.stderr


def test_the_configuration_file_is_named_in_its_errors(workspace: Path) -> None:
    file = workspace / "holdfast.toml"
    file.write_text('[cache]\nmax_bytes = "many"\n')
    result = subprocess.run(
        [sys.executable, "-m", "holdfast.daemon", "--config", file], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"holdfastd: cache.max_bytes ({file}): 'many' is not allowed; write ")
    assert len(result.stderr.splitlines()) == 1


def test_a_daemon_whose_starter_has_gone_serves_all_the_same(make_node: NodeFactory) -> None:
    node = make_node()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", *node.program, "--ready-fd", str(writer)]
    for key, value in node.settings.items():
        command += ["--set", f"{key}={value}"]
    with node.log.open("ab") as log, subprocess.Popen(command, pass_fds=[writer], stdout=log, stderr=log) as daemon:
        os.close(writer)
        try:
            wait_until(lambda: node.events("mounted") != [])
            (node.checkpoints / "file").write_bytes(b"bytes")
        finally:
            daemon.terminate()
    assert daemon.returncode == 0, node.log.read_text()
