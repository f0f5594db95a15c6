"""holdfastd after a reboot: ``python -m tests.support.daemons.rebooted_daemon`` takes its arguments.

The file that ``HOLDFAST_TEST_BOOT_ID`` names has the boot id that it finds instead of the kernel's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast import daemon
from holdfast.system import processes

BOOT_ID = "HOLDFAST_TEST_BOOT_ID"

if __name__ == "__main__":
    processes._BOOT_ID = Path(os.environ[BOOT_ID])
    sys.exit(daemon.main())
