"""Starting the small programs that a daemon has beside it, for what it must not wait for itself.

Such a program is a file that imports only the standard library, so that it is there at once and takes little memory. For the
same reason its own module imports this one only where it starts it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence


def started(program: str, *arguments: str, descriptors: Sequence[int] = ()) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start ``program``, a path; return the channel to it, and the process. Raises ``OSError``.

    Its arguments are the number of its end of the channel, those of ``descriptors``, and ``arguments``. It has to end when
    the channel is closed. It has a session of its own: Ctrl-C is for the daemon only.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        passed = [there.fileno(), *descriptors]
        command = [sys.executable, "-I", "-S", program, *map(str, passed), *arguments]
        try:
            return here, subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL, env={}, start_new_session=True)
        except OSError:
            here.close()
            raise
