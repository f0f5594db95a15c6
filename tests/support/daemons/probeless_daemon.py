"""holdfastd for whom somebody takes the lock of a file again whenever it was free a moment ago: it does not wait before.

``python -m tests.support.daemons.probeless_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.fs.inodes.hot_files import HotFiles


async def _settle(self: HotFiles, inode: int) -> None:
    del self, inode


if __name__ == "__main__":
    HotFiles.settle = _settle  # type: ignore[method-assign]
    sys.exit(daemon.main())
