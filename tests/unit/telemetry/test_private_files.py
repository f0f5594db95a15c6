"""Log and journal are private to root and the daemon's group."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.telemetry.private_files import PrivateLogFile
from tests.support.disks.mounts import mounted
from tests.support.users.privileges import needs_root


def test_a_log_that_others_could_read_loses_that_right(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    PrivateLogFile(log, 10**6).close()
    assert stat.S_IMODE(log.stat().st_mode) == 0o640


@needs_root
def test_a_device_as_log_stays_everybodys(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "dev") as devices:  # /tmp may have none: nodev on Debian 13
        null = devices / "null"
        os.mknod(null, stat.S_IFCHR, os.makedev(1, 3))
        null.chmod(0o666)
        PrivateLogFile(null, 10**6).close()
        assert stat.S_IMODE(null.stat().st_mode) == 0o666


@needs_root
def test_a_full_disk_is_told_of_once_and_costs_lines_of_the_log_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted("tmpfs", tmp_path / "disk", "-o", "size=8k") as disk:
        ballast, log = disk / "ballast", PrivateLogFile(disk / "log", 10**6)
        ballast.write_bytes(bytes(4096))
        for _ in range(100):
            log.emit(_record("x" * 100))
        told = f"holdfastd: can't write to the log {disk / 'log'}: No space left on device\n"
        assert capsys.readouterr().err == told
        ballast.unlink()
        for _ in range(2):  # what the first one completes is a line from before
            log.emit(_record("again"))
        assert (disk / "log").read_text().endswith("\nagain\n")
        for _ in range(100):
            log.emit(_record("x" * 100))
        assert capsys.readouterr().err == told
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        log.close()


def _record(message: str) -> logging.LogRecord:
    return logging.LogRecord("holdfast", logging.INFO, __file__, 1, message, None, None)
