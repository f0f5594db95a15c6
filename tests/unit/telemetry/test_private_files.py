"""Log and journal are private to root and the daemon's group."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.telemetry.private_files import PrivateLogFile
from tests.support.users.privileges import needs_root


def test_a_log_that_others_could_read_loses_that_right(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    PrivateLogFile(log, 10**6).close()
    assert stat.S_IMODE(log.stat().st_mode) == 0o640


@needs_root
def test_a_device_as_log_stays_everybodys(tmp_path: Path) -> None:
    null = tmp_path / "null"
    os.mknod(null, stat.S_IFCHR, os.makedev(1, 3))
    null.chmod(0o666)
    PrivateLogFile(null, 10**6).close()
    assert stat.S_IMODE(null.stat().st_mode) == 0o666
