"""holdfastd for a kernel without takeover, and that can't put a mount beneath another (Linux 5.4 to 6.4).

``python -m tests.support.daemons.old_mounts_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.kernel import probe
from holdfast.mount import mount_calls


def _can_not(mount: int, path: str) -> bool:
    del mount, path
    return False


if __name__ == "__main__":
    probe._KERNEL = probe._PRUNING_KERNEL = (10**6, 0)
    mount_calls.place_beneath = _can_not
    sys.exit(daemon.main())
