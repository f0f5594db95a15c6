"""The daemon's own files on the disk: what other users read of them, and where they must not be."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.cli.exit_status import ExitStatus
from holdfast.cli.options import asking_client
from holdfast.config import load
from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import SweepRequest
from holdfast.errors import ConfigurationError, DaemonUnreachableError
from holdfast.preflight import private_places
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, StartError
from tests.support.users.privileges import ALICE, MALLORY


def readable(*places: Path) -> list[str]:
    """Return what this user can read or write below ``places``, but what everybody may: the status, the store's id."""
    found = []
    for place in places:
        for directory, _, files in os.walk(place):
            found += [f"{directory}/{name}" for name in files if os.access(f"{directory}/{name}", os.R_OK)]
            found += [f"{directory}/{name}" for name in files if os.access(f"{directory}/{name}", os.W_OK)]
    return [path for path in found if not path.endswith(("/status.sock", "/format.json"))]


def nothing_readable(*places: Path) -> Callable[[], None]:
    def check() -> None:
        assert readable(*places) == []

    return check


@pytest.fixture
def quiet(workspace: Path, make_node: NodeFactory) -> Node:
    """A started node that logs to a file of its own."""
    return make_node(log__file=workspace / "log" / "holdfast.log").start()


@pytest.mark.promise("private-files")
def test_others_read_nothing_of_the_daemons_own(quiet: Node, workspace: Path) -> None:
    """Gain: log, journal of events, plans, index and cache name and hold what the modes in the mount hide."""
    (quiet.checkpoints / "hidden").mkdir(mode=0o700)
    (quiet.checkpoints / "hidden" / "name").write_bytes(b"secret")
    (quiet.work / "driver_a").mkdir()
    with quiet.client() as client:
        client.plan_sweep(SweepRequest(path=str(quiet.checkpoints)))
    MALLORY.do(nothing_readable(quiet.store, quiet.socket.parent, workspace / "log", workspace / "remote"))


@pytest.mark.promise("private-files")
def test_what_an_earlier_version_left_readable_is_mended(quiet: Node, workspace: Path) -> None:
    """Gain: an upgrade leaves the old files as they were, with the same names in them."""
    quiet.stop()
    old = [workspace / "log" / "holdfast.log", workspace / "log" / "holdfast.log.1", quiet.store / "events.jsonl"]
    for path in (*old, quiet.store / "events.jsonl.1"):
        path.touch()
        path.chmod(0o644)
    (quiet.store / "tree").chmod(0o755)
    quiet.store.chmod(0o755)
    quiet.start()
    MALLORY.do(nothing_readable(quiet.store, workspace / "log"))


def test_a_new_log_file_is_as_private_as_the_full_one(make_node: NodeFactory, workspace: Path) -> None:
    """Gain: the attacker waits until the log is full."""
    log = workspace / "log" / "holdfast.log"
    node = make_node(log__file=log, log__max_bytes=2000).start()
    for number in range(30):
        (node.work / f"driver_{number}").mkdir()
    assert log.with_name("holdfast.log.1").exists()
    MALLORY.do(nothing_readable(log.parent))


@pytest.fixture
def switched_off() -> Iterator[None]:
    """The kernel without its own rule about links in sticky directories, which not every system switches on."""
    switch = Path("/proc/sys/fs/protected_symlinks")
    before = switch.read_text()
    switch.write_text("0")
    yield
    switch.write_text(before)


@pytest.mark.promise("private-files")
@pytest.mark.parametrize("key", ["store.directory", "control.socket", "log.file"])
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o773, 0), (0o1777, 0), (0o755, MALLORY.uid)])
def test_the_daemon_puts_nothing_where_others_may_write(
    make_node: NodeFactory, workspace: Path, key: str, mode: int, owner: int
) -> None:
    """Gain: who may write into the directory puts a socket, a store or a symbolic link of their own in its place."""
    open_to_all = workspace / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(mode)
    os.chown(open_to_all, owner, -1)
    name = {"store.directory": "", "control.socket": "control.sock", "log.file": "holdfast.log"}[key]
    node = make_node(**{key.replace(".", "__"): open_to_all / name})
    with pytest.raises(StartError, match=rf"{key} .*{open_to_all} (may be written by|belongs to)"):
        node.start()


def test_a_group_may_write_to_the_directory_of_a_log_alone(make_node: NodeFactory, workspace: Path) -> None:
    (workspace / "group").mkdir()
    (workspace / "group").chmod(0o775)
    make_node(log__file=workspace / "group" / "holdfast.log").start()
    with pytest.raises(StartError, match=r"control.socket .* may be written by other users"):
        make_node("b", control__socket=workspace / "group" / "control.sock").start()


def test_a_link_of_another_user_on_the_way_is_refused(make_node: NodeFactory, workspace: Path) -> None:
    """Gain: the owner of a directory on the way changes where a link in it leads, after the start."""
    theirs, real = workspace / "theirs", workspace / "real"
    real.mkdir()
    theirs.mkdir()
    os.chown(theirs, MALLORY.uid, -1)
    MALLORY.do(lambda: (theirs / "store").symlink_to(real))
    with pytest.raises(StartError, match="belongs to the user"):
        make_node(store__directory=theirs / "store").start()


def test_a_directory_below_a_sticky_one_will_do(make_node: NodeFactory, workspace: Path) -> None:
    (workspace / "tmp").mkdir()
    (workspace / "tmp").chmod(0o1777)
    (workspace / "tmp" / "log").mkdir()
    make_node(log__file=workspace / "tmp" / "log" / "holdfast.log").start()


def test_a_log_that_another_user_has_made_is_not_written(make_node: NodeFactory, workspace: Path) -> None:
    """Gain: in a directory like /tmp, whoever makes the file first may read all that root writes into it."""
    shared = workspace / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    MALLORY.do(lambda: (shared / "store.log").write_bytes(b""))
    node = make_node(store__directory=shared / "store")
    command = [sys.executable, "-m", *node.program, "--background"]
    for key, value in node.settings.items():
        command += ["--set", f"{key}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "it belongs to another user" in ended.stderr
    assert (shared / "store.log").read_bytes() == b""


@pytest.mark.parametrize("kind", ["link", "fifo", "read fifo"])
def test_a_log_is_no_link_and_no_fifo_of_another_user(
    make_node: NodeFactory, workspace: Path, switched_off: None, kind: str
) -> None:
    """Gain: root's log goes into a file of root's that Mallory chooses, or the daemon never starts."""
    shared, passwords = workspace / "tmp", workspace / "passwords"
    shared.mkdir()
    shared.chmod(0o1777)
    passwords.write_bytes(b"")
    log = shared / "store.log"
    MALLORY.do(lambda: log.symlink_to(passwords) if kind == "link" else os.mkfifo(log))
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK) if kind == "read fifo" else None
    node = make_node(store__directory=shared / "store")
    command = [sys.executable, "-m", *node.program, "--background"]
    for key, value in node.settings.items():
        command += ["--set", f"{key}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if reader is not None:
        os.close(reader)
    assert ended.returncode == 1
    assert str(log) in ended.stderr
    assert passwords.read_bytes() == b""


def test_only_root_speaks_to_the_supervisor(make_node: NodeFactory) -> None:
    """Gain: who sends it descriptors has it hold another mount, or as many as it can open."""
    node = make_node()
    node.supervised = True
    node.start()
    (address,) = node.socket.parent.glob("holder-*.sock")
    assert address.stat().st_mode & 0o777 == 0o600

    def attack() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, pytest.raises(PermissionError):
            channel.connect(str(address))

    for user in (MALLORY, ALICE):
        user.do(attack)


def test_the_control_socket_is_for_its_group_alone(node: Node) -> None:
    """Gain: names of all files, and every action on them."""
    assert node.socket.stat().st_mode & 0o777 == 0o660

    def attack() -> None:
        with pytest.raises(PermissionError):
            socket.socket(socket.AF_UNIX).connect(str(node.socket))
        with asking_client(node.socket) as client, pytest.raises(RefusedError, match="not for everybody"):
            list(client.entries(str(node.mountpoint)))
        with ControlClient(node.socket) as client, pytest.raises(DaemonUnreachableError, match="this user may not use"):
            client.pin(str(node.mountpoint))

    MALLORY.do(attack)


@pytest.mark.parametrize("is_linked", [False, True], ids=["direct", "linked"])
@pytest.mark.parametrize(
    ("place", "mode", "owner"),
    [
        ("file", 0o666, 0),
        ("file", 0o664, 0),
        ("file", 0o644, MALLORY.uid),
        ("directory", 0o777, 0),
        ("directory", 0o755, MALLORY.uid),
    ],
)
def test_root_takes_no_orders_from_a_file_that_others_may_write(
    workspace: Path, place: str, mode: int, owner: int, *, is_linked: bool
) -> None:
    """Gain: who writes root's configuration says where root's daemon mounts, writes and logs."""
    (workspace / "theirs").mkdir()
    file = workspace / "theirs/holdfast.toml"
    file.touch(mode=0o644)
    changed = file if place == "file" else file.parent
    changed.chmod(mode)
    os.chown(changed, owner, -1)
    (workspace / "link.toml").symlink_to(file)
    given = workspace / "link.toml" if is_linked else file
    for command, status in ((["holdfast.daemon"], 1), (["holdfast", "mount"], ExitStatus.CONFIGURATION)):
        ended = subprocess.run(
            [sys.executable, "-m", *command, "--config", given], capture_output=True, text=True, check=False
        )
        assert ended.returncode == status
        said = ended.stdout + ended.stderr
        assert f"the configuration file {given}: " in said
        assert ("belongs to the user" if owner else "may be written by") in said


def test_a_configuration_that_is_mounted_read_only_may_have_any_mode(workspace: Path) -> None:
    """Kubernetes mounts a ConfigMap so, with the mode 0777."""
    volume = workspace / "volume"
    volume.mkdir()
    (volume / "holdfast.toml").write_text("cache.min_free_bytes = 0\n")
    (volume / "holdfast.toml").chmod(0o666)
    volume.chmod(0o777)
    subprocess.run(["mount", "--bind", "-o", "ro", volume, volume], check=True)
    try:
        loaded = load(volume / "holdfast.toml", {}, {"store.directory": str(workspace / "store")})
        private_places.check(loaded)
    finally:
        subprocess.run(["umount", volume], check=True)
    with pytest.raises(ConfigurationError, match="may be written by other users"):
        private_places.check(loaded)
