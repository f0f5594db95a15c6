"""holdfastd that can't open the files again that an earlier daemon had open, as if it might open no more files.

``python -m tests.support.daemons.unopening_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

from holdfast import daemon
from holdfast.fs.takeover import reopening


def _refuse(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


if __name__ == "__main__":
    vars(reopening)["open_local"] = _refuse
    sys.exit(daemon.main())
