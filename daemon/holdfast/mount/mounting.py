"""Mounting in one step: a new mount takes the place of a dead one, and nobody sees the directory underneath.

The kernel can do that since Linux 6.5. Before, the dead mount goes first; what is underneath takes no writes
(``covered_directory``).
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import takewhile

from holdfast.errors import MountpointError
from holdfast.mount import mount_calls, mountpoint

_KIND, _SUBTYPE = mountpoint.FILE_SYSTEM.split(".")


def mount(path: str, *, allow_other: bool) -> int | None:
    """Mount a Holdfast on ``path``, which ``mountpoint.prepare`` has returned, in place of what dead daemons left there.

    Return its descriptor of ``/dev/fuse``; None if this process may not mount, or the kernel lacks such calls: then libfuse
    must do it, with mount(2) or fusermount3. Raises ``MountpointError``.
    """
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    with ExitStack() as undo:
        undo.callback(os.close, device)
        options = _options(device, allow_other=allow_other)
        try:
            made = mount_calls.make(_KIND, options, mount_calls.NO_SET_ID | mount_calls.NO_DEVICES)
            try:
                _put(made, path)
            finally:
                os.close(made)
        except OSError as problem:
            if problem.errno in mount_calls.NOT_POSSIBLE:
                return None
            raise MountpointError(f"the kernel refused to mount on {path}: {problem.strerror}") from None
        undo.pop_all()
    return device


def _options(device: int, *, allow_other: bool) -> dict[str, str | None]:
    options: dict[str, str | None] = {
        "source": "holdfast",
        "subtype": _SUBTYPE,
        "fd": str(device),
        "rootmode": "40000",
        "user_id": str(os.getuid()),
        "group_id": str(os.getgid()),
        "default_permissions": None,
    }
    return {**options, "allow_other": None} if allow_other else options


def _put(made: int, path: str) -> None:
    """Put the mount ``made`` on ``path``. What is mounted there is dead, or a cover."""
    stack = mountpoint.stack_on(path)
    dead = [mount.number for mount in takewhile(lambda mount: mount.is_holdfast, stack)]
    for _ in dead[1:]:
        mountpoint.detach(path)  # below it is another dead one
    if not dead:
        mount_calls.place(made, path)
    elif mount_calls.place_beneath(made, path):
        top = mountpoint.mounted_on(path)
        if top is not None and top.number == dead[-1]:  # nobody else has taken it away
            mountpoint.detach(path)
    else:
        mountpoint.clear(path)
        mount_calls.place(made, path)
