"""Passwords and keys of stores: where they must not be found while a node runs."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.config import hand_over, handed_over
from holdfast.mount.mountpoint import mount_at, unmount
from tests.support.daemons.node import wait_until
from tests.support.processes.programs import holdfast
from tests.support.users.privileges import MALLORY

_PASSWORD = "hunter2-correct-horse"
_ROOM = "cache.min_free_bytes=0"


@pytest.fixture
def place(workspace: Path) -> Iterator[Path]:
    """Where a node is mounted by ``holdfast mount``; what was mounted there goes with it."""
    (workspace / "mount").mkdir()
    yield workspace
    if mount_at(str(workspace / "mount")) is not None:
        unmount(str(workspace / "mount"))
    wait_until(lambda: not processes_of(workspace))


def mounted(place: Path, *options: str, environment: dict[str, str] | None = None) -> Path:
    """Mount over a store whose URL has a password; return its control socket."""
    socket = place / "run" / "control.sock"
    holdfast(
        "mount",
        place / "mount",
        "--store",
        place / "store",
        "--checkpoints",
        f"memory://somebody:{_PASSWORD}@host/checkpoints",
        "--blobs",
        f"file://{place}/blobs",
        "--set",
        _ROOM,
        *options,
        "--socket",
        socket,
        environment=environment,
    )
    return socket


def processes_of(place: Path) -> list[int]:
    """Return the processes of the node: those that name its directory among their arguments or open files."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        links = []
        try:
            for link in (process / "fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    links.append(os.readlink(link))
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if int(process.name) != os.getpid() and (
            str(place).encode() in arguments or any(str(place) in link for link in links)
        ):
            found.append(int(process.name))
    return found


def so_many_processes_of(place: Path, count: int) -> list[int]:
    """Return the processes of the node once there are so many: those of before, or of a start, take a while to end."""
    found: list[int] = []

    def are_there() -> bool:
        found[:] = processes_of(place)
        return len(found) == count

    wait_until(are_there)
    return found


def shown_to_others(pid: int) -> bytes:
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ", "comm"))


@pytest.mark.promise("passwords")
@pytest.mark.parametrize(("options", "count"), [((), 1), (("--supervise",), 3)])
def test_a_password_stays_in_no_process(place: Path, options: tuple[str, ...], count: int) -> None:
    """Gain: every user of the node reads the password of a store with ps(1), for as long as the node runs.

    The daemon alone, or with its supervisor and the probe of the mount.
    """
    socket = mounted(place, *options)
    for pid in so_many_processes_of(place, count):
        assert _PASSWORD.encode() not in shown_to_others(pid)
    holdfast("restart", "--socket", socket)
    for pid in so_many_processes_of(place, count):
        assert _PASSWORD.encode() not in shown_to_others(pid)
    assert "memory://host/checkpoints" in holdfast("status", "--socket", socket), "the options are those from before"


@pytest.mark.promise("passwords")
def test_a_password_is_in_no_answer_and_in_no_file(place: Path) -> None:
    """Gain: whoever may read a log, an event, a status has the password too."""
    socket = mounted(place)
    (place / "mount" / "checkpoints" / "file").write_bytes(b"x")
    said = [
        holdfast(*command, "--socket", socket)
        for command in (("status",), ("status", "--json"), ("events", "--json"), ("stat", place / "mount/checkpoints/file"))
    ]
    configuration = {"HOLDFAST_STORES__CHECKPOINTS__URL": f"memory://somebody:{_PASSWORD}@host/checkpoints"}
    said.append(holdfast("config", "show", environment=configuration))
    assert _PASSWORD not in "".join(said)
    holdfast("umount", place / "mount", "--socket", socket)
    so_many_processes_of(place, 0)  # or some files go while they are looked at
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert _PASSWORD.encode() not in path.read_bytes(), path


def test_what_the_daemon_starts_does_not_get_its_credentials(place: Path) -> None:
    """Gain: a credential lies in the environment of processes that have no use for it, and outlives a change of it."""
    mounted(place, environment={"AWS_SECRET_ACCESS_KEY": _PASSWORD})
    (daemon,) = [pid for pid in processes_of(place) if b"holdfast.daemon" in shown_to_others(pid)]
    children: list[int] = []
    for task in Path(f"/proc/{daemon}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            children += map(int, (task / "children").read_text().split())
    for pid in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # a child that has
            assert _PASSWORD.encode() not in shown_to_others(pid)
    with pytest.raises(AssertionError, match="PermissionError"):
        MALLORY.do(lambda: Path(f"/proc/{daemon}/environ").read_bytes())


def test_a_daemon_that_crashes_leaves_no_core_file(place: Path) -> None:
    """Gain: a core file has the credentials, and pieces of everybody's files."""
    mounted(place, "--supervise")
    for pid in so_many_processes_of(place, 3):
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)


def test_options_can_not_be_changed_on_their_way() -> None:
    """Gain: whoever gets hold of the descriptor gives the next daemon another store."""
    fd = hand_over({"stores.checkpoints.url": "memory://x"})
    try:
        with pytest.raises(PermissionError):
            os.write(fd, b"x")
        assert handed_over(fd) == handed_over(fd) == {"stores.checkpoints.url": "memory://x"}
    finally:
        os.close(fd)
