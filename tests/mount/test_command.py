"""The holdfast command as a user types it, and the control socket as curl speaks to it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from holdfast import __version__
from holdfast.cli import doctor, doctor_daemon, doctor_start, entries, mounting, observing, unmounting, workdirs
from holdfast.config import hand_over, load
from holdfast.control.client import RefusedError
from holdfast.control.messages import RemoteStatus
from holdfast.errors import ConfigurationError, DaemonUnreachableError, HoldfastError
from holdfast.mount import mount_calls, mountpoint
from holdfast.workdirs import Process
from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.kernel.needs import HAS_TAKEOVER, needs_takeover
from tests.support.processes.programs import is_status
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server
from tests.support.users.privileges import as_nobody

WHY_NO_TAKEOVER = "nobody holds the mount while there is no daemon" if HAS_TAKEOVER else "no takeover: kernel"


def holdfast(*arguments: object, socket: Path | None = None, status: int = 0) -> str:
    """Run the command; return what it prints (on stderr when it is to fail). ``status`` 1 stands for any kind of error."""
    environment = {**os.environ, **({"HOLDFAST_SOCKET": str(socket)} if socket else {})}
    command = [sys.executable, "-m", "holdfast", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert is_status(result.returncode, status), result.stderr + result.stdout
    return result.stderr if status else result.stdout


def doctors(*arguments: object, socket: Path) -> list[dict[str, str]]:
    """Return the findings of doctor, whether it found a fault or not."""
    command = [sys.executable, "-m", "holdfast", "doctor", "--json", "--socket", str(socket), *map(str, arguments)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    findings: list[dict[str, str]] = json.loads(told.stdout)
    assert told.returncode == any(finding["level"] == "fail" for finding in findings), told.stderr
    return findings


def test_mount_status_umount(workspace: Path) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    try:
        said = holdfast("mount", place, "--store", workspace / "store", *stores, socket=control)
        assert said.startswith(f"mounted on {place} (daemon ")
        (place / "checkpoints/file").write_bytes(b"x")
        status = json.loads(holdfast("status", "--json", socket=control))
        assert status["version"] == __version__
        assert status["mountpoint"] == str(place)
        assert status["data_mode"].startswith(("passthrough", "daemon-io: "))
        assert status["uptime_seconds"] > 0
        os.kill(status["pid"], 0)
        again = holdfast("mount", place, "--store", workspace / "store", *stores, socket=control, status=1)
        assert "a running Holdfast is mounted there" in again
        with (place / "checkpoints/file").open():
            busy = holdfast("umount", place, socket=control, status=1)
            assert f"is in use by {os.getpid()} (" in busy
        restarted = json.loads(holdfast("restart", "--json", socket=control))
        assert restarted["pid"] != status["pid"]
        assert (place / "checkpoints/file").read_bytes() == b"x"
        assert holdfast("umount", place, socket=control) == (
            f"unmounted {place}\n"
            f"the directory takes no writes until it is mounted again; 'holdfast umount --release {place}' gives it back\n"
        )
        assert not Process(restarted["pid"], 0, "").is_alive()
        assert os.listdir(place) == []
        told = holdfast("umount", place, socket=control, status=66)
        assert (
            f"no Holdfast is mounted at {place}; the directory takes no writes: 'holdfast umount --release {place}'" in told
        )
        assert "no daemon answers" in holdfast("status", socket=control, status=69)
    finally:
        if mountpoint.mount_at(str(place)):
            mountpoint.detach(str(place))


def test_umount_gives_the_directory_back_with_or_without_a_mount(node: Node) -> None:
    with pytest.raises(PermissionError), mount_calls.bare(str(node.mountpoint)) as below:
        os.mkdir("checkpoints", dir_fd=below)
    assert holdfast("umount", "--release", node.mountpoint, socket=node.socket) == f"unmounted {node.mountpoint}\n"
    (node.mountpoint / "file").touch()
    (node.mountpoint / "file").unlink()
    node.wait_end()
    node.start()
    holdfast("umount", node.mountpoint, socket=node.socket)
    with pytest.raises(PermissionError):
        node.mountpoint.rmdir()
    told = holdfast("umount", "--release", node.mountpoint, socket=node.socket)
    assert told == f"{node.mountpoint} takes writes again\n"
    node.mountpoint.rmdir()
    node.wait_end()


def test_umount_releases_nothing_that_holdfast_has_not_protected(workspace: Path) -> None:
    (workspace / "own").mkdir()
    own = workspace / "own"
    told = holdfast("umount", "--release", own, socket=workspace / "control.sock")
    assert told == f"{own} is left as it is: Holdfast has not protected it\n"
    none = workspace / "none"
    assert f"there is no directory {none}" in holdfast(
        "umount", "--release", none, socket=workspace / "control.sock", status=66
    )


def test_a_mount_that_fails_leaves_no_protected_directory(workspace: Path) -> None:
    """Gain: nothing is mounted, nothing says that the directory is immutable, and it can't be removed."""
    place = workspace / "mnt"
    place.mkdir()
    (workspace / "run").mkdir()
    (workspace / "run/status.sock").write_text("not a socket")
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    holdfast("mount", place, "--store", workspace / "store", *stores, socket=workspace / "run/control.sock", status=1)
    assert mountpoint.mount_at(str(place)) is None
    place.rmdir()


def test_a_first_mount_on_a_directory_that_is_not_empty_is_refused(workspace: Path) -> None:
    place = workspace / "mnt"
    place.mkdir()
    (place / "lost").touch()
    told = holdfast("mount", place, "--store", workspace / "store", socket=workspace / "run/control.sock", status=1)
    assert f"the mountpoint {place} is not empty, and the mount would hide what it holds (lost)" in told
    assert not (workspace / "store").exists()


def test_a_mount_with_any_setting(workspace: Path) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    options = ["--store", workspace / "store", *stores]
    team = f"file://{workspace}/remote/team"
    said = holdfast("mount", place, *options, "--set", f"stores.team.url={team}/../blobs", socket=control, status=1)
    assert "is the same store as stores.blobs.url (option)" in said
    said = holdfast("mount", place, *options, "--set", "stores.blobs.url=s3://x", socket=control, status=1)
    assert said == "holdfast: --set stores.blobs.url: another option says this too; keep one of them\n"
    said = holdfast("mount", place, *options, "--set", "blobs.url=s3://x", socket=control, status=1)
    assert "stores.blobs.url (option) and blobs.url (option) are one key" in said
    assert "write SECTION.KEY=VALUE" in holdfast("mount", place, *options, "--set", "cache", socket=control, status=78)
    try:
        settings = ["--set", f"stores.team.url={team}", "--set", "cache.max_bytes=20GiB"]
        holdfast("mount", place, *options, *settings, socket=control)
        (place / "team/file").write_bytes(b"x")
        holdfast("restart", socket=control)
        status = json.loads(holdfast("status", "--json", socket=control))
        assert status["max_bytes"] == 20 * 2**30
        assert status["remotes"]["team"]["url"] == team
        assert (place / "team/file").read_bytes() == b"x"
        holdfast("umount", place, socket=control)
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))


def test_wait_is_content_with_a_mount_that_answers_and_with_nothing_else(node: Node) -> None:
    assert holdfast("wait", socket=node.socket) == f"{node.mountpoint} answers\n"
    command = [sys.executable, "-m", "holdfast", "wait", "--json", "--socket", str(node.socket)]
    os.kill(node.pid, signal.SIGSTOP)
    try:
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    assert json.loads(waiting.communicate()[0]) == {"mountpoint": str(node.mountpoint)}
    elsewhere = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'umount --lazy "{node.mountpoint}" && "$@"',
        "sh",
        *command,
        "--timeout=0",
    ]
    said = subprocess.run(elsewhere, capture_output=True, text=True, check=False)
    assert f"the daemon serves {node.mountpoint}, but this process sees no Holdfast mounted there" in said.stderr
    node.stop()
    assert "no mount has answered within 0 s: no daemon" in holdfast("wait", "--timeout", 0, socket=node.socket, status=69)


def parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


@needs_takeover
@pytest.mark.promise("takeover")
def test_a_supervised_mount_goes_on_over_restarts(workspace: Path) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    try:
        holdfast("mount", place, "--supervise", "--store", workspace / "store", *stores, socket=control)
        first = json.loads(holdfast("status", "--json", socket=control))
        assert first["takeover"] == "takeover"
        with (place / "checkpoints/file").open("w+b", buffering=0) as file:
            file.write(b"before ")
            restarted = json.loads(holdfast("restart", "--json", socket=control))
            assert restarted["pid"] != first["pid"]
            file.write(b"and after")
            file.seek(0)
            assert file.read() == b"before and after"
        assert (workspace / "remote/checkpoints/file").read_bytes() == b"before and after"
        supervisor = os.pidfd_open(parent_of(restarted["pid"]))
        holdfast("umount", place, socket=control)
        assert select.select([supervisor], [], [], 60.0)[0], "its supervisor goes on"
        os.close(supervisor)
        assert not place.is_mount()
        assert list(control.parent.iterdir()) == []
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))


@needs_takeover
def test_a_container_that_is_told_to_end_leaves_its_mount_to_the_next_one(workspace: Path) -> None:
    """With the commands of the chart's containers."""
    place, control, kept = workspace / "mnt", workspace / "run/control.sock", workspace / "keeper"
    place.mkdir()
    program = [sys.executable, "-m", "holdfast"]
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    options = ["--foreground", "--supervise", f"--keeper={kept}", f"--store={workspace / 'store'}", *stores]

    def container() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*program, "mount", str(place), *options, f"--socket={control}"])

    with subprocess.Popen([*program, "keeper", str(kept), "--abandon", "60"]) as keeper:
        try:
            wait_until((kept / "keep.sock").exists)
            with container() as first:
                holdfast("wait", "--timeout", 60, socket=control)
                (place / "checkpoints/file").write_bytes(b"before")
                first.terminate()
                assert first.wait(60) == 0
            with (
                subprocess.Popen(["cat", place / "checkpoints/file"], stdout=subprocess.PIPE) as reader,
                container() as second,
            ):
                assert reader.communicate()[0] == b"before"
                holdfast("wait", "--timeout", 60, socket=control)
                status = json.loads(holdfast("status", "--json", socket=control))
                assert (status["takeover"], status["problems"]) == ("takeover", [])
                holdfast("umount", place, socket=control)
                assert second.wait(60) == 0
        finally:
            keeper.kill()
            if mountpoint.mount_at(str(place)) is not None:
                mountpoint.detach(str(place))


def test_a_restart_of_a_daemon_whose_supervisor_was_killed_loses_nothing(workspace: Path) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    try:
        holdfast("mount", place, "--supervise", "--store", workspace / "store", *stores, socket=control)
        second = json.loads(holdfast("restart", "--json", socket=control))["pid"]
        supervisor = os.pidfd_open(parent_of(second))
        signal.pidfd_send_signal(supervisor, signal.SIGKILL)
        assert select.select([supervisor], [], [], 60.0)[0]
        os.close(supervisor)
        with (place / "checkpoints/file").open("wb", buffering=0) as file:
            assert "is in use by" in holdfast("restart", socket=control, status=1)
            file.write(b"kept")
        said = " ".join(holdfast("restart", socket=control).split())
        assert WHY_NO_TAKEOVER in said
        assert (place / "checkpoints/file").read_bytes() == b"kept"
        holdfast("umount", place, socket=control)
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))


def test_a_restart_leaves_a_supervisor_where_the_mount_ends_with_its_daemon(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    (workspace / "shadow").mkdir()
    (workspace / "shadow/_holdfast_kernel.py").write_text("raise ImportError('not built')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(workspace / "shadow"), os.environ.get("PYTHONPATH", "")]))
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    try:
        holdfast("mount", place, "--supervise", "--store", workspace / "store", *stores, socket=control)
        said = " ".join(holdfast("restart", socket=control).split())
        assert "no takeover: " in said
        assert "so it was unmounted and mounted again" in said
        (place / "checkpoints/file").write_bytes(b"kept")
        second = json.loads(holdfast("status", "--json", socket=control))["pid"]
        daemon = os.pidfd_open(second)
        signal.pidfd_send_signal(daemon, signal.SIGKILL)
        assert select.select([daemon], [], [], 60.0)[0]
        os.close(daemon)
        holdfast("wait", "--timeout", 60, socket=control)
        assert json.loads(holdfast("status", "--json", socket=control))["pid"] != second
        assert (place / "checkpoints/file").read_bytes() == b"kept"
        holdfast("umount", place, socket=control)
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))


def test_a_restart_says_when_the_mount_does_not_go_on(workspace: Path) -> None:
    place, control = workspace / "mnt", workspace / "run/control.sock"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    try:
        holdfast("mount", place, "--store", workspace / "store", *stores, socket=control)
        said = " ".join(holdfast("restart", socket=control).split())
        assert WHY_NO_TAKEOVER in said
        assert "so it was unmounted and mounted again" in said
        with (place / "checkpoints/file").open("wb"):
            assert "is in use by" in " ".join(holdfast("restart", socket=control, status=1).split())
        holdfast("umount", place, socket=control)
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))


@pytest.mark.parametrize("supervisor", [[], ["--supervise"]], ids=["alone", "supervised"])
def test_a_restart_with_a_mistake_in_the_configuration_leaves_daemon_and_mount(
    supervisor: list[str], workspace: Path
) -> None:
    place, control, file = workspace / "mnt", workspace / "run/control.sock", workspace / "holdfast.toml"
    place.mkdir()
    stores = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    file.write_text("[cache]\nmax_bytes = 1000000\n")
    try:
        holdfast("mount", place, *supervisor, "--config", file, "--store", workspace / "store", *stores, socket=control)
        first = json.loads(holdfast("status", "--json", socket=control))
        (place / "checkpoints/file").write_bytes(b"kept")
        mistakes = {"max_bites": "[cache]\nmax_bites = 1\n", "lies in the mountpoint": f'[log]\nfile = "{place}/log"\n'}
        for named, mistake in mistakes.items():
            file.write_text(mistake)
            said = holdfast("restart", socket=control, status=78)
            assert said.startswith("holdfast: the next daemon would not start: "), said
            assert named in said
            assert (place / "checkpoints/file").read_bytes() == b"kept"
        assert json.loads(holdfast("status", "--json", socket=control))["pid"] == first["pid"]
        file.write_text("[cache]\nmax_bytes = 2000000\n")
        holdfast("restart", socket=control)
        now = json.loads(holdfast("status", "--json", socket=control))
        assert (now["pid"] != first["pid"], now["max_bytes"]) == (True, 2_000_000)
        assert (place / "checkpoints/file").read_bytes() == b"kept"
        holdfast("umount", place, socket=control)
    finally:
        if mountpoint.mount_at(str(place)) is not None:
            mountpoint.detach(str(place))


def test_a_daemon_that_does_not_get_ready_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounting, "_START_SECONDS", 0.05)
    with pytest.raises(HoldfastError, match=r"did not get ready within 0 s, and was ended") as problem:
        mounting._start(["sh", "-c", "exec sleep infinity"], hand_over({}))
    pid = int(str(problem.value).partition("(pid ")[2].partition(")")[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_store_that_can_not_be_made_is_named_not_its_log(workspace: Path) -> None:
    place = workspace / "mnt"
    place.mkdir()
    urls = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    options = [place, *urls, "--socket", workspace / "control.sock"]
    (workspace / "file").touch()
    below_file = workspace / "file" / "store"
    said = holdfast("mount", "--store", below_file, *options, status=1)
    assert said.startswith(f"holdfast: the store directory {below_file} can't be used: Not a directory"), said
    (workspace / "store").mkdir()
    (workspace / "store.log").mkdir()
    said = holdfast("mount", "--store", workspace / "store", *options, status=1)
    assert said.startswith(f"holdfast: log.file is not set, and {workspace}/store.log, beside store.directory"), said
    assert mountpoint.mount_at(str(place)) is None


def test_a_control_socket_that_can_not_be_made_is_named_and_nothing_is_lost(workspace: Path) -> None:
    place, file, link = workspace / "mnt", workspace / "file", workspace / "link"
    place.mkdir()
    file.write_bytes(b"content")
    link.symlink_to("nowhere")
    urls = [f"--{zone}=file://{workspace}/remote/{zone}" for zone in ("checkpoints", "blobs")]
    options = [place, *urls, "--store", workspace / "store", "--socket"]
    long = workspace / ("long" * 30)
    for path, reason in (
        (long, "the path is too long for a socket; 107 bytes will do"),
        (file, "something else stands there"),
        (link, "something else stands there"),
    ):
        said = holdfast("mount", *options, path, status=1)
        assert said == f"holdfast: control.socket: can't listen on {path}: {reason}; set control.socket (--socket)\n"
        assert mountpoint.mount_at(str(place)) is None
    assert file.read_bytes() == b"content"
    assert link.is_symlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(workspace / "other"))
        assert "something else stands there" in holdfast("mount", *options, workspace / "other", status=1)
        other.connect(str(workspace / "other"))
    long = workspace / ("long" * 20) / "control.sock"
    said = holdfast("mount", "--supervise", *options, long, status=1)
    assert said.startswith(f"holdfast: control.socket: can't listen on {long}: the path is too long for a socket")


def test_looking_at_files(node: Node) -> None:
    (node.checkpoints / "query/offsets").mkdir(parents=True)
    (node.checkpoints / "query/offsets/0").write_bytes(b"v1")
    path = node.checkpoints / "query/offsets/0"
    assert "checkpoints" in holdfast("ls", socket=node.socket)
    listed = json.loads(holdfast("ls", path.parent, "--json", socket=node.socket))
    assert [(entry["path"], entry["state"]) for entry in listed] == [(str(path), "cached")]
    entry = json.loads(holdfast("stat", path, "--json", socket=node.socket))
    assert entry["object"].endswith("/remote/checkpoints/query/offsets/0")
    assert entry["digest"].startswith("xxh3-128:")
    directory, here = holdfast("why", path.parent, socket=node.socket), holdfast("why", node.work, socket=node.socket)
    assert "Stores keep objects, not directories" in directory
    assert "is never sent" not in directory
    assert "It is only on this node and is never sent." in here
    why = holdfast("why", path, socket=node.socket)
    assert "write-once" in why
    assert "served from the disk" in why
    assert "evicted 1 of 1 file," in holdfast("evict", path, socket=node.socket)
    assert "Only the store has it" in holdfast("why", path, socket=node.socket)
    assert "fetched 1 of 1 file," in holdfast("prefetch", path.parent, socket=node.socket)
    assert "verified 1 of 1 file," in holdfast("verify", "--all", socket=node.socket)
    assert "pinned" in holdfast("pin", path, socket=node.socket)
    assert "won't be evicted" in holdfast("why", path, socket=node.socket)
    assert "unpinned" in holdfast("unpin", path, socket=node.socket)


@pytest.mark.parametrize("command", ["ls", "stat", "why", "verify", "prefetch", "evict", "pin"])
def test_a_path_outside_the_mount(node: Node, command: str) -> None:
    said = holdfast(command, "/etc/passwd", socket=node.socket, status=66)
    assert said == f"holdfast: /etc/passwd is not in the mount at {node.mountpoint}\n"


@pytest.mark.parametrize("command", ["ls", "stat", "why", "verify", "prefetch", "evict"])
def test_a_path_that_is_not_there(node: Node, command: str) -> None:
    said = holdfast(command, node.checkpoints / "nothing", socket=node.socket, status=66)
    assert said == f"holdfast: there is no {node.checkpoints}/nothing\n"


def test_verify_looks_at_local_state(node: Node) -> None:
    (node.work / "worker_1").mkdir()
    path = node.work / "worker_1/localState/1.sst"
    path.write_bytes(b"as it was written")
    path = path.rename(path.with_name("2.sst"))
    node.wait_digest(path)
    for wanted in (path, path.parent, node.work, "--all"):
        assert "verified 1 of 1 file, 17 B; 0 problems" in holdfast("verify", wanted, socket=node.socket)
    node.backing(path).write_bytes(b"as it was changed")
    holdfast("verify", path.parent, socket=node.socket, status=1)
    assert not path.exists()


def test_verify_exits_with_1_when_something_was_dropped(node: Node) -> None:
    path = node.checkpoints / "file"
    path.write_bytes(b"good")
    node.backing(path).write_bytes(b"evil")
    result = subprocess.run(
        [sys.executable, "-m", "holdfast", "verify", "--all", "--socket", node.socket],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "differ from its digest" in result.stdout


def test_workdir_commands(node: Node) -> None:
    said = holdfast("workdir", "acquire", "--role", "worker", "--id", "h-1", "--pid", os.getpid(), socket=node.socket)
    assert said == f"{node.work}/worker_h-1\n"
    held = json.loads(holdfast("workdir", "ls", "--json", socket=node.socket))
    assert f"pid {os.getpid()} " in held[0]["holder"]
    refused = holdfast("workdir", "acquire", "--role", "worker", "--id", "h-1", "--pid", 1, socket=node.socket, status=75)
    assert f"held by pid {os.getpid()}" in refused
    with (node.work / "worker_h-1/.lease").open():
        assert "is released as soon as this ends" in holdfast(
            "workdir", "release", "--role", "worker", "--id", "h-1", socket=node.socket
        )
    assert "kept until" in holdfast("workdir", "release", "--role", "worker", "--id", "h-1", socket=node.socket)
    assert "there is no working directory" in holdfast(
        "workdir", "release", "--role", "worker", "--id", "none", socket=node.socket, status=1
    )


def test_doctor_names_what_is_wrong_and_how_to_mend_it(node: Node, workspace: Path) -> None:
    settings = workspace / "good.toml"
    settings.write_text(
        f'[store]\ndirectory = "{node.store}"\n[checkpoints]\nurl = "file://{workspace}/remote/checkpoints"\n'
        f'[blobs]\nurl = "file://{workspace}/remote/blobs"\n'
    )
    findings = json.loads(holdfast("doctor", "--config", settings, "--json", socket=node.socket))
    assert {finding["check"] for finding in findings} >= {"kernel", "fuse", "rights", "store", "checkpoints", "daemon"}
    assert [finding for finding in findings if finding["level"] != "ok"] == []
    (workspace / "mnt").mkdir()
    settings.write_text(
        f'[mount]\nmountpoint = "{workspace}/mnt"\n[store]\ndirectory = "{workspace}/new"\n'
        '[checkpoints]\nurl = "s3://bucket/x"\n[checkpoints.options]\nendpoint = "http://127.0.0.1:1"\n'
    )
    result = subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", "--config", settings, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "HOLDFAST_SOCKET": str(workspace / "none.sock"),
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        },
    )
    assert result.returncode == 1
    failed = [finding for finding in json.loads(result.stdout) if finding["level"] == "fail"]
    assert [finding["check"] for finding in failed] == ["checkpoints"]
    assert "checkpoints.url" in failed[0]["mend"]


def test_umount_ends_a_daemon_whose_mount_a_container_keeps(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmounting, "_BEFORE_SIGTERM_SECONDS", 0.2)
    container = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; read -r line"]
    with subprocess.Popen(container, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"ready\n"
        daemon = Process.find(node.pid)
        unmounting.umount(str(node.mountpoint), socket=node.socket)
        assert not daemon.is_alive()
        supervisor.communicate(b"\n")


def test_a_mount_that_is_to_be_taken_away_when_dead_goes_when_nobody_serves_it_and_not_before(node: Node) -> None:
    command = [sys.executable, "-m", "holdfast", "umount", "--when-dead", str(node.mountpoint)]
    before = node.status().kernel_requests.get("STATFS", 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        wait_until(lambda: node.status().kernel_requests.get("STATFS", 0) >= before + 2)  # it has looked twice
        assert (waiting.poll(), os.path.ismount(node.mountpoint)) == (None, True)
        os.kill(node.pid, signal.SIGKILL)
        node.wait_end()
        assert waiting.communicate()[0].startswith(f"unmounted {node.mountpoint}\n")
    assert (waiting.returncode, os.path.ismount(node.mountpoint)) == (0, False)
    assert "the directory takes no writes" in holdfast("umount", "--when-dead", node.mountpoint), "it was unmounted before"
    assert holdfast("umount", "--when-dead", "--release", node.mountpoint) == f"unmounted {node.mountpoint}\n"
    (node.mountpoint / "file").touch()
    (node.mountpoint / "file").unlink()


def test_everybody_may_ask_and_only_the_group_may_change(node: Node) -> None:
    """The commands' functions, all modules loaded: nobody can't read them."""
    assert node.status().pid == node.pid

    def ask() -> None:
        observing.status(node.socket, as_json=True)
        workdirs.list_all(node.socket, as_json=True)
        for command in (entries.ls, entries.stat, entries.why):
            with pytest.raises(RefusedError, match="as root or as a member of its group"):
                command(str(node.checkpoints), node.socket)
        for follow in (False, True):
            with pytest.raises(RefusedError, match="as root or as a member of its group"):
                observing.events(follow, socket=node.socket)
        with pytest.raises(DaemonUnreachableError, match=r"membership in the group \w+"):
            entries.pin(str(node.checkpoints), socket=node.socket)

    as_nobody(ask)


def test_nobody_learns_a_name_from_the_socket_that_is_for_everybody(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.1).start()
    private = node.checkpoints / "private"
    private.mkdir(mode=0o700)
    proxy.answer(503, times=1000, method="PUT", matching="secret")
    with pytest.raises(OSError, match="Input/output"):
        (private / "secret").write_bytes(b"x")
    node.wait_event("send-delayed", path="checkpoints/private/secret")
    reading = node.socket.with_name("status.sock")
    status, all_of_it = (_curl(path, "GET", "/v1/status")[1] for path in (reading, node.socket))
    assert all_of_it["unsent_files"] == 1
    assert "unsent_files" not in status, "what others have not sent is theirs"
    assert "secret" in json.dumps(all_of_it)
    assert "secret" not in json.dumps(status)
    for route in ("entries", "entry", "why", "events", "workdirs"):
        assert "secret" not in json.dumps(_curl(reading, "GET", f"/v1/{route}?path={private}")[1])
    assert "unsent" not in holdfast("status", "--socket", reading)
    proxy.heal()


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ('region = "x"', "warn"),
        ('region = "x", endpoint = "http://127.0.0.1:1"', "fail"),
        ('region = "x", access_key_id = "a", secret_access_key = "b"', "fail"),
        ('regoin = "x"', "fail"),
        ('endpoint = "127.0.0.1:1"', "fail"),
    ],
)
def test_doctor_forgives_a_store_only_what_the_daemon_may_have_in_its_environment(
    node: Node, workspace: Path, monkeypatch: pytest.MonkeyPatch, options: str, level: str
) -> None:
    """Credentials and address may be in variables that a shell has not; a mistake in the file is none of these."""
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:1"), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
        monkeypatch.setenv(f"AWS_{name}", value)
    (workspace / "new.toml").write_text(f'[stores.checkpoints]\nurl = "s3://bucket/x"\noptions = {{ {options} }}\n')
    loaded = load(workspace / "new.toml", os.environ)
    seen = RemoteStatus(url="s3://bucket/x", up=True, since=0.0, problem="", pending_deletions=0)
    asked = [node.status(), msgspec.structs.replace(node.status(), remotes={"checkpoints": seen})]
    store = doctor_start._opened(loaded, "checkpoints")
    others, same = ([*doctor_start._remote("checkpoints", store, loaded.config, status)] for status in asked)
    assert [finding.level for finding in others + same] == ["fail", level]
    assert ("the daemon that runs reaches it" in same[0].found) == (level == "warn")


def test_doctor_keeps_what_it_says_of_a_daemon_and_of_a_configuration_apart(node: Node, workspace: Path) -> None:
    new = workspace / "new.toml"
    new.write_text(f'[store]\ndirectory = "{workspace}/new"\n[stores.checkpoints]\nurl = "s4://bucket/x"\n')
    command = [sys.executable, "-m", "holdfast", "doctor", "--config", str(new), "--socket", str(node.socket)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    headings = ("this machine", f"the daemon at {node.socket}", f"a daemon that starts with {new}")
    machine, daemon, start = (said.index(f"{each}:\n") for each in headings)
    assert machine < said.index("kernel") < daemon < said.index("serves") < start
    key = f"stores.checkpoints.url ({new}): s4://bucket/x: no such kind of store"
    assert key in said[start:]
    assert "could start with it" not in said[start:]
    assert "a daemon that starts" not in holdfast("doctor", socket=node.socket)


def test_doctor_checks_the_daemon_that_answers(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, workspace: Path
) -> None:
    file = workspace / "own.toml"
    file.write_text("")
    node = make_s3_node(place.through(proxy.endpoint), remote__retry_deadline_seconds=0.1)
    node.environment["HOLDFAST_CONFIG"] = str(file)
    node.start()
    levels = {finding["check"]: finding["level"] for finding in doctors(socket=node.socket)}
    assert levels == dict.fromkeys(levels, "ok")
    assert {"daemon", "configuration", "mount", "checkpoints", "blobs", "store"} <= levels.keys()
    proxy.down()
    with pytest.raises(OSError, match="Input/output"):
        (node.checkpoints / "file").write_bytes(b"x")
    wait_until(lambda: "Connection refused" in node.status().remotes["checkpoints"].problem)  # at first, one was cut
    found = {finding["check"]: finding for finding in doctors(socket=node.socket)}
    assert found["checkpoints"]["level"] == "fail"
    assert "is DOWN since " in found["checkpoints"]["found"]
    assert "Connection refused" in found["checkpoints"]["found"]
    file.write_text("[cache]\nmax_bytes = 1000000\n[remote]\nparallel_transfers = 3\n")
    changed = [each["found"] for each in doctors(socket=node.socket) if each["check"] == "configuration"]
    assert changed == [
        "changed, and not in force yet: cache.max_bytes",
        "changed, and needs a restart: remote.parallel_transfers",
    ]
    file.write_text("[cache]\nmax_bites = 1\n")
    (configuration,) = [each for each in doctors(socket=node.socket) if each["check"] == "configuration"]
    assert (configuration["level"], "max_bites" in configuration["found"]) == ("fail", True)
    proxy.up()


def test_doctor_says_to_anybody_what_it_may(
    node: Node, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = mountpoint.life(str(node.mountpoint))
    monkeypatch.setattr(mountpoint, "life", lambda _: alive)  # nobody can't run the tests' Python

    def ask() -> None:
        os.environ.pop("HOLDFAST_CONFIG", None)
        doctor.doctor(None, node.socket, as_json=True)

    as_nobody(ask)
    found = {finding["check"]: finding for finding in json.loads(capfd.readouterr().out)}
    assert found["daemon"]["found"].startswith(f"daemon {node.pid} serves {node.mountpoint}")
    assert found["configuration"]["level"] == "warn"
    assert "as root or as a member of the socket's group" in found["configuration"]["mend"]


def test_doctor_does_not_wait_for_a_daemon_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_daemon, "_STATUS_SECONDS", 0.2)
    os.kill(node.pid, signal.SIGSTOP)
    try:
        status, finding = doctor_daemon.asked(node.socket)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    assert status is None
    assert finding is not None
    assert finding.level == "fail"
    assert "has not answered within 0.2 s" in finding.found


def test_doctor_fails_for_the_dead_mount_it_is_asked_about_and_warns_of_others(node: Node, workspace: Path) -> None:
    levels = []
    node.kill_daemon()
    try:
        for configured in (str(node.mountpoint), f"{workspace}/other", ""):
            found = doctor_start._daemon(workspace / "none.sock", configured)
            levels += [finding.level for finding in found if str(node.mountpoint) in finding.found]
    finally:
        node.crashed()
    assert levels == ["fail", "warn", "fail"]


def test_doctor_makes_nothing(workspace: Path) -> None:
    settings = workspace / "new.toml"
    places = [f'[{name}]\nurl = "file://{workspace}/remote/{name}"\n' for name in ("checkpoints", "blobs")]
    settings.write_text(
        f'[mount]\nmountpoint = "{workspace}/mnt"\n[store]\ndirectory = "{workspace}/store"\n' + "".join(places)
    )
    (workspace / "mnt").mkdir()
    findings = json.loads(holdfast("doctor", "--config", settings, "--json", socket=workspace / "none.sock"))
    assert [finding["check"] for finding in findings if "mount creates it" in finding["found"]] == [
        "store",
        "checkpoints",
        "blobs",
    ]
    assert sorted(os.listdir(workspace)) == ["mnt", "new.toml"]
    (workspace / "mnt").rmdir()
    said = doctors("--config", settings, socket=workspace / "none.sock")
    assert [finding["found"] for finding in said if finding["level"] == "fail"] == [
        f"the mountpoint {workspace}/mnt does not exist; create it: mkdir -p {workspace}/mnt"
    ]


def test_config_show_says_where_values_come_from(workspace: Path) -> None:
    settings = workspace / "holdfast.toml"
    settings.write_text('[cache]\nmax_bytes = "20GiB"\n[checkpoints.options]\nsecret_access_key = "hush"\n')
    rows = json.loads(holdfast("config", "show", "--config", settings, "--json"))
    shown = {row["key"]: (row["value"], row["source"]) for row in rows}
    assert shown["cache.max_bytes"] == ("20GiB", str(settings))
    assert shown["stores.blobs.url"][1] == "default"
    assert shown["stores.checkpoints.options.secret_access_key"][0] == "***"


def test_events_can_be_followed(node: Node) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "events", "--follow", "--json", "--socket", node.socket],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    (node.work / "worker_1").mkdir()
    seen = ""
    for line in follower.stdout:
        seen += line
        if "workdir-acquired" in seen:
            break
    follower.kill()
    follower.wait()
    follower.stdout.close()
    assert '"mounted"' in seen


def _curl(path: Path, method: str, route: str, body: Any = None) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        head = f"{method} {route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    header, _, payload = reply.partition(b"\r\n\r\n")
    return int(header.split()[1]), json.loads(payload) if payload.startswith((b"{", b"[")) else payload


def test_the_sockets_speak_plain_http(node: Node) -> None:
    reading = node.socket.with_name("status.sock")
    assert node.socket.stat().st_mode & 0o777 == 0o660
    assert reading.stat().st_mode & 0o777 == 0o666
    for path in (node.socket, reading):
        code, status = _curl(path, "GET", "/v1/status")
        assert (code, status["mountpoint"]) == (200, str(node.mountpoint))
    code, failure = _curl(node.socket, "POST", "/v1/evict", {"path": "/elsewhere"})
    assert (code, failure["code"]) == (409, "outside-mount")
    code, failure = _curl(reading, "POST", "/v1/evict", {"path": str(node.checkpoints)})
    assert (code, failure["code"]) == (403, "withheld")
    code, failure = _curl(node.socket, "POST", "/v1/workdirs/acquire", {"role": "worker"})
    assert "missing required field" in failure["message"]


def test_listings_come_in_pages(node: Node) -> None:
    for number in range(25):
        (node.checkpoints / f"{number:02}").write_bytes(b"x")
    seen: list[str] = []
    after = ""
    while True:
        _, page = _curl(node.socket, "GET", f"/v1/entries?path={node.checkpoints}&limit=10&after={after}")
        seen += [entry["path"].rsplit("/", 1)[1] for entry in page["entries"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == [f"{number:02}" for number in range(25)]


def test_names_that_are_not_utf8_are_shown_escaped(node: Node) -> None:
    directory = node.work / "plain"
    directory.mkdir()
    for number in range(3):
        Path(os.fsdecode(b"%s/%d\xff" % (os.fsencode(directory), number))).touch()
    (directory / "4").touch()
    with node.client() as client:
        names = [Path(entry.path).name for entry in client.entries(str(directory))]
        assert names == [r"0\xff", r"1\xff", r"2\xff", "4"]
        with pytest.raises(ConfigurationError, match="not UTF-8"):
            client.entry(f"{directory}/0\udcff")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(node.socket)), base_url="http://holdfast") as http:
        page = http.get("/v1/entries", params={"path": str(directory), "limit": 1}).json()
        assert [Path(entry["path"]).name for entry in page["entries"]] == names
        assert page["next"] is None


@pytest.mark.parametrize("command", ["ls", "stat", "why", "verify", "prefetch", "evict", "pin"])
def test_a_name_that_no_file_can_have(node: Node, command: str) -> None:
    said = holdfast(command, node.checkpoints / ("n" * 256) / "file", socket=node.socket, status=1)
    assert said.startswith(f"holdfast: no file can have the name {'n' * 20}... of 256 bytes")
    assert "at most 255" in said


def test_refusals_over_http_say_whose_fault_it_is(node: Node) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(node.socket)), base_url="http://holdfast") as http:

        def asked(path: object) -> tuple[int, str]:
            reply = http.get("/v1/entry", params={"path": str(path)})
            return reply.status_code, reply.json()["code"]

        assert asked(node.checkpoints / "nothing") == (404, "no-such-entry")
        assert asked(node.checkpoints / ("n" * 256)) == (400, "name-too-long")
        assert asked("/etc/passwd") == (409, "outside-mount")
        assert http.get("/v1/entry").status_code == 400


def test_a_path_with_a_null_character_is_refused(node: Node) -> None:
    with node.client() as client, pytest.raises(RefusedError, match="null character"):
        client.entry(f"{node.work}/a\0b")


def test_looking_at_files_leaves_no_nodes_behind(node: Node) -> None:
    directory = node.backing(node.work / "plain")
    (directory / "below").mkdir(parents=True)
    for number in range(50):
        (directory / str(number)).touch()
    before = node.status().known_nodes
    with node.client() as client:
        assert len(list(client.entries(str(node.work / "plain")))) == 51
        assert client.entry(str(node.work / "plain/below")).type == "directory"
        with pytest.raises(RefusedError, match="there is no"):
            client.entry(str(node.work / "plain/below/missing"))
    assert node.status().known_nodes == before


def test_fetching_ahead_leaves_no_nodes_behind(make_node: NodeFactory) -> None:
    writer, reader = make_node("writer").start(), make_node("reader").start()
    (writer.checkpoints / "a/b").mkdir(parents=True)
    (writer.checkpoints / "a/b/file").write_bytes(b"x")
    before = reader.status().known_nodes
    with reader.client() as client:
        assert [step.done for step in client.prefetch(str(reader.checkpoints / "a"))][-1] == 1
    assert reader.status().known_nodes == before
    assert reader.backing(reader.checkpoints / "a/b/file").read_bytes() == b"x"
    assert (reader.checkpoints / "a/b/file").read_bytes() == b"x"
