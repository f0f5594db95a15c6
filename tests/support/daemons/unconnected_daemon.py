"""holdfastd that mounts, and then can't start the process that makes the kernel forget names.

``python -m tests.support.daemons.unconnected_daemon`` takes holdfastd's arguments. It fails once if the file
``HOLDFAST_TEST_CRASH_ARMED`` is there.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import wraps

from holdfast import daemon
from holdfast.kernel import Invalidator
from tests.support.daemons.crashing_daemon import ARMED, disarm


def _fails(self: Invalidator, device: int) -> None:
    if disarm(os.environ[ARMED]):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    _original(self, device)


if __name__ == "__main__":
    _original = Invalidator.__init__
    Invalidator.__init__ = wraps(_original)(_fails)  # type: ignore[method-assign]
    sys.exit(daemon.main())
