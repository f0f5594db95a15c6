"""holdfastd for a kernel without passthrough and takeover: it tells the kernel of changes by itself, through libfuse.

``python -m tests.support.daemons.oldest_kernel_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.kernel import probe

if __name__ == "__main__":
    probe._KERNEL = probe._PRUNING_KERNEL = (10**6, 0)
    sys.exit(daemon.main())
