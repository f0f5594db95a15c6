"""The program that binds a directory of the mount to a target: it alone looks into the mount, and may hang there.

``python -m holdfast.csi.binding MOUNTPOINT DEVICE PATH TARGET rw|ro UID GID``: an error is one line on stderr, its status
first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.csi.serving import CallError, invalid
from holdfast.csi.volumes import Volume, Wanted
from holdfast.errors import MountpointError
from holdfast.mount.mount_calls import copy_of, place
from holdfast.mount.mountpoint import Mount
from holdfast.system.processes import for_child
from holdfast.system.syscalls import open_without_links

_SECONDS = 20.0
"""The time limit for binding, in which the daemon may have to ask the store about each name of a path."""
_SEARCH = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MODE = 0o755


def bind(mount: Mount, volume: Volume) -> None:
    """Bind a volume's directory of ``mount`` to its target, in one step. Raises ``CallError`` and ``MountpointError``."""
    mode, owner = "ro" if volume.wanted.read_only else "rw", [str(volume.wanted.uid), str(volume.wanted.gid)]
    about = [mount.mountpoint, str(mount.device), volume.path, volume.target, mode, *owner]
    program = subprocess.Popen(
        [sys.executable, "-m", __name__, *about], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=for_child(os.environ)
    )
    try:
        _, said = program.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()  # it ends when the daemon answers
        raise MountpointError(f"the mount at {mount.mountpoint} does not answer") from None
    if program.returncode == 0:
        return
    status, _, message = said.decode(errors="replace").strip().rpartition("\n")[2].partition(" ")
    raise CallError(status if status in ("INVALID_ARGUMENT", "UNAVAILABLE") else "INTERNAL", message or "binding failed")


def _bind(mountpoint: str, device: int, wanted: Wanted, target: str) -> None:
    """Raises ``OSError`` and ``CallError``."""
    root = os.open(mountpoint, _SEARCH)
    if os.fstat(root).st_dev != device:
        raise CallError("UNAVAILABLE", f"the mount at {mountpoint} is being replaced")
    with _directory(root, wanted) as directory:
        place(copy_of(directory, read_only=wanted.read_only), target)


@contextmanager
def _directory(root: int, wanted: Wanted) -> Iterator[int]:
    """Open the directory; make what is missing of it, but neither a store nor anything beside them."""
    at = root
    names = wanted.path.split("/") if wanted.path else []
    for depth, name in enumerate(names):
        try:
            below = _opened(at, name)
        except FileNotFoundError:
            if depth == 0:
                raise invalid(f"the mount has no store {name!r}") from None
            _make(at, name, wanted)
            below = _opened(at, name)
        os.close(at)
        at = below
    try:
        yield at
    finally:
        os.close(at)


def _opened(at: int, name: str) -> int:
    try:
        return open_without_links(at, name.encode(), _SEARCH, beneath=True)
    except NotADirectoryError:
        raise invalid(f"{name!r} on the volume's path is no directory, or a symbolic link") from None


def _make(at: int, name: str, wanted: Wanted) -> None:
    above = os.fstat(at)
    try:
        os.mkdir(name, _MODE, dir_fd=at)
    except FileExistsError:  # another volume was faster
        return
    owner = above.st_uid if wanted.uid == -1 else wanted.uid, above.st_gid if wanted.gid == -1 else wanted.gid
    os.chown(name, *owner, dir_fd=at, follow_symlinks=False)


def main(arguments: list[str]) -> None:
    """Bind; end with an error's line."""
    mountpoint, device, path, target, mode, uid, gid = arguments
    try:
        _bind(mountpoint, int(device), Wanted(path, mode == "ro", int(uid), int(gid)), target)
    except CallError as problem:
        sys.exit(f"{problem.status} {problem}")
    except OSError as problem:
        sys.exit(f"INTERNAL can't bind {path or 'the mount'} to {target}: {problem.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
