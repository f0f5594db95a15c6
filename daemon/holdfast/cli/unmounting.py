"""The command umount, and the end of a daemon."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket
from holdfast.cli.output import counted, print_json, say, warn
from holdfast.cli.progress import waiting
from holdfast.control.client import ControlClient
from holdfast.control.messages import Status
from holdfast.errors import DaemonSilentError, HoldfastError, NotMountedError
from holdfast.mount import covered_directory
from holdfast.mount import mountpoint as mountpoints

_STOP_SECONDS = 60.0
_BEFORE_SIGTERM_SECONDS = 15.0
_STATUS_SECONDS = 10.0
"""The time limit for the status, which takes milliseconds: a daemon that hangs must not hold up its unmount."""


def umount(
    mountpoint: Annotated[str, typer.Argument(help="Where Holdfast is mounted.")],
    lazy: Annotated[bool, typer.Option("--lazy", help="Take the mount away even though files are open in it.")] = False,
    when_dead: Annotated[
        bool,
        typer.Option("--when-dead", help="Wait until nobody serves the mount, or holds it for a daemon; then take it away."),
    ] = False,
    release: Annotated[
        bool,
        typer.Option("--release", help="Let the directory take writes again, and be removed; also if nothing is mounted."),
    ] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Unmount; return when the daemon has ended.

    The directory below takes no writes until --release: what somebody wrote there, the next mount would hide.
    """
    path = str(Path(mountpoint).absolute())
    if when_dead:
        mountpoints.detach_when_dead(path)
        is_released = release and mountpoints.mount_at(path) is None  # else somebody has mounted something new there
        if is_released:
            covered_directory.release(path)
        _tell_unmounted(path, None, is_released=is_released, as_json=as_json)
        return
    mounted = mountpoints.mount_at(path)
    if mounted is None and release:
        _release(path, as_json=as_json)
        return
    if mounted is None or mounted.file_system != mountpoints.FILE_SYSTEM:
        raise NotMountedError(f"no Holdfast is mounted at {mountpoint}{_to_release(path)}")
    status = _daemon_of(path, socket)
    pid = status.pid if status else None
    with waiting("unmounting", as_json=as_json):
        if lazy or not mountpoints.is_alive(path):
            mountpoints.detach(path)
        else:
            mountpoints.unmount(path)
        if pid:
            wait_end(pid)
        if release:
            covered_directory.release(path)
    _tell_unmounted(path, status, is_released=release, as_json=as_json)


def _tell_unmounted(path: str, status: Status | None, *, is_released: bool, as_json: bool) -> None:
    if as_json:
        of_daemon = {"pid": status.pid, "unsent": status.unsent_files} if status else {"pid": None, "unsent": None}
        print_json({"mountpoint": path, **of_daemon})
        return
    say(f"unmounted {path}")
    if not is_released and not os.access(path, os.W_OK):
        say(f"the directory takes no writes until it is mounted again; 'holdfast umount --release {path}' gives it back")
    tell_unsent(status)


def _release(path: str, *, as_json: bool) -> None:
    was_protected = covered_directory.release(path)
    if as_json:
        print_json({"mountpoint": path, "pid": None, "unsent": None})
    elif was_protected:
        say(f"{path} takes writes again")
    else:
        say(f"{path} is left as it is: Holdfast has not protected it")


def _to_release(path: str) -> str:
    if not covered_directory.is_protected(path):
        return ""
    return f"; the directory takes no writes: 'holdfast umount --release {path}' gives it back"


def _daemon_of(path: str, socket: Path) -> Status | None:
    """Return the status of the daemon behind ``socket`` if it is the one that mounted ``path``."""
    try:
        with ControlClient(socket, _STATUS_SECONDS) as client:
            status = client.status()
    except DaemonSilentError as problem:  # the daemon itself may be at fault: unmount all the same
        warn(f"its end is not waited for: {problem}")
        return None
    except HoldfastError:
        return None
    return status if status.mountpoint == mountpoints.real_path(path) else None


def tell_unsent(status: Status | None) -> None:
    """Say how many files are kept for a store that has not had them yet."""
    if status and status.unsent_files:
        say(
            f"{counted(status.unsent_files, 'file')} had not been sent to a store yet: kept in {status.store}, and sent "
            "while Holdfast is mounted with it ('holdfast flush --all' waits for that)"
        )


def wait_end(pid: int) -> None:
    """Wait until the daemon has ended: on its own, because its mount is gone, or by SIGTERM after a while.

    It does not notice the unmount if another mount namespace, such as a container's, still has a copy of the mount.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _ends_within(fd, _BEFORE_SIGTERM_SECONDS):
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGTERM)
        if not _ends_within(fd, _STOP_SECONDS):
            raise HoldfastError(
                f"the mount is gone, but the daemon {pid} has not ended {_STOP_SECONDS:.0f} s after SIGTERM; "
                f"'kill -ABRT {pid}' ends it, and its log says where it hung"
            )
    finally:
        os.close(fd)


def _ends_within(pidfd: int, seconds: float) -> bool:
    return bool(select.select([pidfd], [], [], seconds)[0])
