"""holdfastd whose mount somebody takes away while it starts: it has found it, and not yet taken it over.

``python -m tests.support.daemons.unmounting_daemon`` takes holdfastd's arguments. The mount is detached once if the file
``HOLDFAST_TEST_CRASH_ARMED`` is there.
"""

from __future__ import annotations

import os
import sys
from functools import wraps

from holdfast import daemon
from holdfast.mount import mountpoint
from holdfast.session.handover import Handover, Inheritance
from tests.support.daemons.crashing_daemon import ARMED, disarm


def _finds(self: Handover) -> Inheritance | None:
    found = _original(self)
    if found is not None and disarm(os.environ[ARMED]):
        mountpoint.detach(found.identity.mountpoint)
    return found


if __name__ == "__main__":
    _original = Handover.find
    Handover.find = wraps(_original)(_finds)  # type: ignore[method-assign]
    sys.exit(daemon.main())
