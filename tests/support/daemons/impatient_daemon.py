"""holdfastd that waits for a file's lock a tenth of the time where it waits longest, before writes and truncations.

``python -m tests.support.daemons.impatient_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.fs.file_io import open_files, read_write

if __name__ == "__main__":
    for _module in (open_files, read_write):
        vars(_module)["LONG_PATIENCE_SECONDS"] /= 10
    sys.exit(daemon.main())
