"""holdfastd for a kernel that can't be asked to forget what nobody uses (FUSE_NOTIFY_PRUNE).

``python -m tests.support.daemons.old_kernel_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.kernel import probe

if __name__ == "__main__":
    probe._PRUNING_KERNEL = (10**6, 0)
    sys.exit(daemon.main())
