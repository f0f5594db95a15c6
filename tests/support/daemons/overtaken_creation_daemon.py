"""holdfastd in which a file of root's appears under the name ``overtaken`` when somebody is about to create it.

So it is when a fetch brings an object between the kernel's look at a name and its creation.
``python -m tests.support.daemons.overtaken_creation_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from holdfast import daemon
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.namespace.create import Creation

CONTENT = b"root's alone"
_open_new = Creation._open_new


def _open_overtaken(creation: Creation, name: Name, mode: int, **how: bool) -> tuple[int, bool]:
    if name.name == b"overtaken":
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with suppress(FileExistsError):
            fd = os.open(name.name, flags, 0o600, dir_fd=creation._directories.descriptor_for_new(name.directory))
            os.write(fd, CONTENT)
            os.close(fd)
    return _open_new(creation, name, mode, **how)


if __name__ == "__main__":
    vars()["Creation"]._open_new = _open_overtaken
    sys.exit(daemon.main())
