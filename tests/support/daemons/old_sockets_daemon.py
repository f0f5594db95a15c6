"""holdfastd for a kernel on which users may send descriptors over any Unix socket (before Linux 6.16).

``python -m tests.support.daemons.old_sockets_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.control import doors

if __name__ == "__main__":
    doors.SO_PASSRIGHTS = 10**6  # ENOPROTOOPT
    sys.exit(daemon.main())
